// Stochastic beam search on a small tree, level by level (argrad/sequences/).

const END = 0; // the token that ends a sequence
const LONGEST = 3;

/** The name of a child: a hash of its parent's name and the token. */
const childName = (name, token) => splitmix(times(name, GOLDEN) ^ times(BigInt(token + 1), ROW_2));
const rootName = () => childName(splitmix(0n), 0);
const MINUS_1 = MASK;

/** log(1 - exp(x)) for x < 0. */
const log1mexp = (x) => (x > -Math.LN2 ? Math.log(-Math.expm1(x)) : Math.log1p(-Math.exp(x)));
/** log(1 + exp(x)). */
const softplus = (x) => Math.max(x, 0) + Math.log1p(Math.exp(-Math.abs(x)));

/** Perturbed log-probabilities, shifted monotonically so that the largest is `top`. */
function shiftMaximum(g, top) {
  const best = argmax(g);
  return g.map((v, i) => (i === best ? top : top - softplus(top - v + log1mexp(v - g[best]))));
}

/** The children of a node: each gets its own Gumbel, given that the largest among them is the node's. */
function children(node, table, key) {
  const logits = table[node.tokens.at(-1) ?? 0];
  const logZ = logsumexp(logits);
  const keys = rowKeys(key, node.name);
  const logProb = logits.map((v) => node.logProb + v - logZ);
  const noisy = logProb.map((v, token) => v + gumbelOf(word(keys, BigInt(token))));
  const perturbed = shiftMaximum(noisy, node.perturbed);
  return logits.map((_, token) => ({
    tokens: [...node.tokens, token],
    name: childName(node.name, token),
    logProb: logProb[token],
    perturbed: perturbed[token],
    finished: token === END || node.tokens.length + 1 === LONGEST,
  }));
}

/** Every level: what was looked at, what was kept, and kappa, the largest value dropped so far. */
function beamSearch(table, k, seed) {
  const key = seedKey(seed);
  const name = rootName();
  const top = gumbelOf(word(rowKeys(key, name), MINUS_1));
  let beam = [{ tokens: [], name, logProb: 0, perturbed: top, finished: false }];
  let kappa = -Infinity;
  const levels = [{ looked: beam, kept: beam, kappa }];
  while (beam.some((node) => !node.finished)) {
    const looked = beam.flatMap((node) => (node.finished ? [node] : children(node, table, key)));
    looked.sort((x, y) => y.perturbed - x.perturbed);
    beam = looked.slice(0, k);
    if (looked.length > k) kappa = Math.max(kappa, looked[k].perturbed);
    levels.push({ looked, kept: beam, kappa });
  }
  return levels;
}
