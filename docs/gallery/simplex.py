"""Four temperatures on the triangle.

The same 400 draws of Gumbel noise at four temperatures: a relaxed choice among three items is a point
of the triangle. At a high temperature all points crowd in the middle, at a low one they sit in the
corners, and the *winner* of a draw (its colour) never changes ([Temperature](../temperature.md)). The
ring is the softmax, the mean of hard samples at every temperature; the cross is the mean of the soft
ones.
"""

import matplotlib.pyplot as plt
import torch

import argrad as ag

logits = torch.tensor([0.5, 0.3, 0.2]).log()
noise = ag.CounterRNG(3)  # without a state: every call draws the same numbers
taus = (3.0, 1.0, 0.4, 0.1)

figure, axes = plt.subplots(1, 4, figsize=(9, 2.6), layout="constrained")
for ax, tau in zip(axes, taus, strict=True):
    ag.plot.simplex(logits, tau, draws=400, generator=noise, ax=ax)

samples = [ag.gumbel_softmax(logits.expand(400, 3), tau, generator=noise) for tau in taus]
winners = torch.stack(samples).argmax(-1)  # (4, 400)
bool((winners == winners[0]).all())  # -> True
plt.show()
