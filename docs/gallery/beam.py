"""Six different words, drawn at random.

Stochastic beam search draws sequences *without replacement* from a model that spells: no two are the
same, the order is that of drawing, and each carries its exact log-probability and what an unbiased
estimate needs ([Sequences](../sequences/index.md)).
"""

import matplotlib.pyplot as plt
import torch

import argrad as ag

letters = "_aelrst"  # the first ends a word
g = torch.Generator().manual_seed(8)
table = 2.2 * torch.randn(7, 7, generator=g)  # scores of a letter after another
table[:, 0] += 1.0
table[0, 0] = -torch.inf  # a word is not empty


def step(tokens, state):  # the model: last letters in, scores of the next out
    last = torch.zeros(1, dtype=torch.long) if tokens is None else tokens
    return table[last], state


sample = ag.stochastic_beam_search(
    step, None, 6, batch_size=1, eos=0, max_len=5, generator=torch.Generator().manual_seed(1)
)
words = ["".join(letters[t] for t in row if t > 0) for row in sample.tokens[0].tolist()]
len(set(words))  # -> 6

figure, ax = plt.subplots(figsize=(8, 3.4), layout="constrained")
ag.plot.beam_tree(sample, spell=lambda token: letters[token], ax=ax)
plt.show()
