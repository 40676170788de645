// What each tab shows, as a function of its state; `argrad.play.answers` gives the same from the library.

const NUMBERS = {
  simplex({ logits, tau, seed, draws }) {
    const perturbed = gumbels(seed, draws, 3).map((g) => plus(logits, g));
    const soft = perturbed.map((w) => softmax(w, tau));
    const hard = perturbed.map((w) => range(3).map((i) => (i === argmax(w) ? 1 : 0)));
    return { soft, mean: mean(soft), frequency: mean(hard), expectation: softmax(logits) };
  },

  race({ logits, seed, rounds }) {
    const n = logits.length;
    const perturbed = gumbels(seed, rounds, n).map((g) => plus(logits, g));
    const winners = perturbed.map(argmax);
    const last = perturbed[rounds - 1];
    return {
      winners,
      perturbed: last,
      times: last.map((w) => Math.exp(-w)),
      share: range(n).map((i) => winners.filter((w) => w === i).length / rounds),
      probability: softmax(logits),
    };
  },

  structures({ structure, k, scores, tau, seed, noise }) {
    if (structure === 'subset') {
      const n = scores.length;
      const perturbed = noise ? plus(scores, gumbelRow(seed, 0, n)) : scores;
      const list = objects('subset', n, k);
      return { perturbed, soft: marginals(list, perturbed, tau), hard: choose(list, perturbed) };
    }
    const n = scores.length;
    const undirected = structure === 'tree';
    const g = (i, j) => {
      if (!noise || (undirected && i === j)) return 0;
      return undirected ? gumbelRow(seed, Math.min(i, j), n)[Math.max(i, j)] : gumbelRow(seed, i, n)[j];
    };
    const perturbed = matrix(n, n, (i, j) => scores[i][j] + g(i, j));
    const list = objects(structure, n, 0);
    const hard = choose(list, perturbed.flat());
    const soft = structure === 'permutation' ? sinkhorn(perturbed, tau).flat() : marginals(list, perturbed.flat(), tau);
    const square = (flat) =>
      matrix(n, n, (i, j) => flat[undirected ? Math.min(i, j) * n + Math.max(i, j) : i * n + j]);
    return { perturbed, soft: square(soft), hard: square(hard) };
  },

  beam({ table, k, seed }) {
    const { kept, kappa } = beamSearch(table, k, seed).at(-1);
    const length = Math.max(...kept.map((node) => node.tokens.length));
    const pad = (tokens) => range(length).map((i) => tokens[i] ?? END);
    return {
      tokens: kept.map((node) => pad(node.tokens)),
      log_prob: kept.map((node) => node.logProb),
      perturbed: kept.map((node) => node.perturbed),
      kappa,
      // p / P(G > kappa)
      weights: kept.map((node) => Math.exp(node.logProb) / -Math.expm1(-Math.exp(node.logProb - kappa))),
    };
  },
};
