// "Copy as Python": a program that computes what the tab shows, by the same names.

const HEAD = 'import torch\nimport argrad as ag\n\n';
const tensor = (values) => {
  const text = Array.isArray(values[0])
    ? `[\n${values.map((row) => `    [${row.join(', ')}],`).join('\n')}\n]`
    : `[${values.join(', ')}]`;
  return `torch.tensor(${text}, dtype=torch.float64)`;
};
const STRUCTURE_CODE = {
  subset: (k) => `ag.Subset(${k})`,
  permutation: () => 'ag.Permutation()',
  tree: () => 'ag.SpanningTree()',
  arborescence: () => 'ag.Arborescence(root=0)',
};

const PYTHON = {
  simplex: ({ logits, tau, seed, draws }) => `${HEAD}logits = ${tensor(logits)}
rng = ag.CounterRNG(${seed})  # stateless: the same noise each time it is used

soft = ag.gumbel_softmax(logits.expand(${draws}, 3), tau=${tau}, generator=rng)
hard = ag.gumbel_softmax(logits.expand(${draws}, 3), tau=${tau}, hard=True, generator=rng)

expectation = logits.softmax(-1)  # of the hard samples, at every temperature
frequency, mean = hard.mean(0), soft.mean(0)
print(torch.stack([expectation, frequency, mean]))
`,

  race: ({ logits, seed, rounds }) => `${HEAD}logits = ${tensor(logits)}
rng = ag.CounterRNG(${seed})
n, rounds = ${logits.length}, ${rounds}

winners = ag.gumbel_max(logits.expand(rounds, n), generator=rng)
share = torch.bincount(winners, minlength=n).double() / rounds
probability = logits.softmax(-1)

# the last race: the first of exponential clocks with rates exp(logits)
perturbed = logits + rng.shift(rows=rounds - 1).gumbel(1, n, dtype=torch.float64)[0]
times = (-perturbed).exp()
print(torch.stack([probability, share, times]))
`,

  structures: ({ structure, k, scores, tau, seed, noise }) => `${HEAD}scores = ${tensor(scores)}
q = ag.Perturbed(${STRUCTURE_CODE[structure](k)}, scores${noise ? '' : ', noise=ag.NoNoise()'})
hard, soft, perturbed, _ = q.draw(tau=${tau}, generator=ag.CounterRNG(${seed}))
print(perturbed, soft, hard, sep="\\n")

# in a model: hard forward, soft backward
z = q.rsample(tau=${tau}, hard=True, generator=ag.CounterRNG(${seed}))
`,

  beam: ({ table, k, seed }) => `${HEAD}# tokens: 0 ends the sequence, 1 is a, 2 is b; rows: at the start, after a, after b
table = ${tensor(table)}


def step(token, state):  # the state is the last token
    state = state if token is None else token
    return table[state], state


sample = ag.stochastic_beam_search(
    step, torch.tensor([0]), ${k}, eos=0, max_len=${LONGEST}, generator=ag.CounterRNG(${seed})
)
tokens, log_prob, perturbed = sample.tokens[0], sample.log_prob[0], sample.perturbed[0]
kappa, weights = sample.kappa[0], sample.weights("importance")[0]
print(tokens, log_prob, perturbed, weights, sep="\\n")
`,

  estimators: ({ structure, n, k, cost, perturbed, estimators, replicates, seed }) => {
    const made = { onehot: 'ag.OneHot()', bits: 'ag.Bits()', subset: `ag.Subset(${k})`, spanningtree: 'ag.SpanningTree()' };
    const event = structure === 'spanningtree' ? `(${n}, ${n})` : `(${n},)`;
    const dims = structure === 'spanningtree' ? 2 : 1;
    const costs = {
      linear: 'return x @ c',
      quadratic: 'return ((x @ A) * x).sum(-1) + x @ c',
      product: 'return (1.0 + 0.5 * x * c).prod(-1)',
      tanh: 'return torch.tanh(x @ W) @ v',
    };
    return `${HEAD}float64 = {"dtype": torch.float64}
scores = torch.randn(${event}, **float64, generator=torch.Generator().manual_seed(${seed}))
q = ag.${perturbed ? 'Perturbed' : 'Gibbs'}(${made[structure]}, scores)

g, size = torch.Generator().manual_seed(${seed + 1}), scores.numel()
c = torch.randn(size, **float64, generator=g)
A = torch.randn(size, size, **float64, generator=g) / size**0.5
W = torch.randn(size, 8, **float64, generator=g)
v = torch.randn(8, **float64, generator=g)


def cost(z):
    x = z.flatten(z.dim() - ${dims})
    ${costs[cost]}


estimators = [${estimators.map((name) => `ag.${name}()`).join(', ')}]
report = ag.diagnose(
    cost, q, estimators, replicates=${replicates}, generator=torch.Generator().manual_seed(${seed})
)
print(report)
`;
  },
};
