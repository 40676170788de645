"""Noise with its whole tail.

How often do Gumbel numbers pass a bound, compared with how often they should? Made from 24 random bits,
as `-log(-log(rand))` makes them, they follow a staircase and end at 16.64: items rarer than about 1e-7
are drawn too rarely, or never. Clamping the uniform number, as many do, ends the tail earlier still.
argrad draws 62 bits where it matters ([why](../gumbel.md#how-gumbel-noise-goes-wrong)).
"""

import matplotlib.pyplot as plt
import torch

import argrad as ag
from argrad.plot import COLORS

x = torch.linspace(11, 18, 1000, dtype=torch.float64)
expected = -torch.expm1(-torch.exp(-x))  # P(Gumbel > x)


def on_grid(
    largest,
):  # share of u = 0, 1, ..., largest (in units of 2^-24) with -log(-log u) > x, exactly
    bound = torch.floor(torch.exp(-torch.exp(-x)) * 2**24)
    return ((largest - bound).clamp(min=0)) / 2**24


n, g = 20_000_000, torch.Generator().manual_seed(1)
bounds = torch.arange(11.0, 15.1, 0.5, dtype=torch.float64)
wanted = -n * torch.expm1(-torch.exp(-bounds))
drawn = [x[x > 11] for x in (ag.random.gumbel((n // 5,), generator=g) for _ in range(5))]
seen = (torch.cat(drawn)[:, None] > bounds).sum(0)

figure, ax = plt.subplots(figsize=(6.5, 3), layout="constrained")
ax.plot(x, on_grid(2**24 - 1) / expected, color=COLORS[1], label="24 bits: -log(-log(rand))")
ax.plot(x, on_grid(2**24 - 2) / expected, color=COLORS[4], label="the same, clamped below 1")
ax.errorbar(
    bounds, seen / wanted, 2 / wanted.sqrt(), fmt="o", color=COLORS[0], label="argrad, 20 million draws"
)
ax.axhline(1, color="#333333", linestyle=":")
ax.set(xlabel="x", ylabel="numbers above x, relative", ylim=(0, 1.8))
ax.legend(loc="upper left", ncols=3)
plt.show()
