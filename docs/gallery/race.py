"""The arg max as a race.

Item i arrives after an exponential time of rate p; whoever is first, wins, and wins with probability p.
Minus the logarithm of an arrival time is a Gumbel variable, so this race and "add Gumbel noise, take
the arg max" are one and the same ([the proof](../gumbel_max.md)). Left one race, right the wins of 20
000.
"""

import matplotlib.pyplot as plt
import torch

import argrad as ag
from argrad.plot import COLORS

p = torch.tensor([0.4, 0.3, 0.2, 0.1])
g = torch.Generator().manual_seed(6)
gumbel = p.log() + ag.random.gumbel((20_000, 4), generator=g)
arrival = torch.exp(-gumbel)  # exponential with rate p
winner = arrival.argmin(-1)
wins = winner.bincount(minlength=4) / len(winner)
torch.equal(winner, gumbel.argmax(-1))  # -> True

figure, (left, right) = plt.subplots(1, 2, figsize=(8, 2.7), layout="constrained")
left.barh(range(4), arrival[0], color=[COLORS[0] if i == winner[0] else "#C8CED6" for i in range(4)])
left.set(xlabel="arrival time", title="one race: the first wins", yticks=range(4))
left.set_yticklabels([f"p = {x:.1f}" for x in p])
left.invert_yaxis()
right.bar(range(4), wins, color=COLORS[0], label="share of wins")
right.plot(range(4), p, "o", color=COLORS[1], label="p")
right.set(xlabel="item", title="20 000 races", xticks=range(4))
right.legend()
plt.show()
