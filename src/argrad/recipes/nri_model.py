r"""Neural relational inference (Kipf et al. 2018): an encoder guesses edges from motion, a decoder moves nodes.

A message is an affine function of a hidden layer, and its first layer an affine function of sender and receiver:
$$ m_{sr} = V\,\mathrm{relu}(A x_s + B x_r + b) + c, \qquad
   \sum_s z_{sr} m_{sr} = V \sum_s z_{sr}\,\mathrm{relu}(A x_s + B x_r + b) + c \sum_s z_{sr} \tag{1} $$
so A and B see n nodes instead of n² pairs, and V the n sums. The usual way, one-hot matrices that make all pairs and a
network for each pair, gives the same numbers (`benchmarks/lines/nri.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import elu, linear

import argrad as ag

VARIANCE = 5e-5  # of a coordinate, given the frame before (Kipf et al.)


# ---- which edges: three laws -------------------------------------------------------------------------


class Edges(NamedTuple):
    """A law over the edges of n nodes; `matrix` makes `(..., n, n)` of what it draws."""

    q: ag.Perturbed
    n: int

    def matrix(self, z: Tensor) -> Tensor:
        """Who talks to whom: 1 where there is an edge (or as much as there is of it)."""
        if not isinstance(self.q.structure, ag.Subset):
            return z if z.shape[-1] == self.n else z.unflatten(-1, (self.n, self.n))
        i, j = torch.triu_indices(self.n, self.n, 1)
        upper = z.new_zeros(*z.shape[:-1], self.n, self.n)
        upper[..., i, j] = z
        return upper + upper.mT

    def kl(self) -> Tensor:
        """Of the perturbed scores from noise alone: an upper bound of the divergence of the edges."""
        return self.q.noise_kl()


def _independent(scores: Tensor) -> ag.Perturbed:
    off = ~torch.eye(scores.shape[-1], dtype=torch.bool)
    return ag.Perturbed(ag.Bits(), scores.flatten(-2), mask=off.flatten())


def _top(scores: Tensor) -> ag.Perturbed:
    n = scores.shape[-1]
    i, j = torch.triu_indices(n, n, 1)
    return ag.Perturbed(ag.Subset(n - 1), ((scores + scores.mT) / 2)[..., i, j])


def _tree(scores: Tensor) -> ag.Perturbed:
    return ag.Perturbed(ag.SpanningTree(), (scores + scores.mT) / 2)


LAWS: Mapping[str, Callable[[Tensor], ag.Perturbed]] = {
    "Indep. directed edges": _independent,
    "E.F. Ent. Top |V|-1": _top,
    "Spanning tree": _tree,
}  # from scores `(..., n, n)`


def edges(column: str, scores: Tensor) -> Edges:
    """The law of a column."""
    return Edges(LAWS[column](scores), scores.shape[-1])


# ---- encoder -----------------------------------------------------------------------------------------


class Mlp(nn.Module):
    """Two layers and a normalisation over everything but features."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(inputs, hidden), nn.Linear(hidden, hidden)
        self.norm = nn.BatchNorm1d(hidden)

    def forward(self, x: Tensor) -> Tensor:
        """The same for every row."""
        return self.after(self.first(x))

    def after(self, x: Tensor) -> Tensor:
        """What follows the first layer."""
        y = elu(self.second(elu(x)))
        return self.norm(y.flatten(0, -2)).view(y.shape)


class PairMlp(Mlp):
    """Of sender and receiver: the first layer is one of nodes, added up for each pair."""

    def __init__(self, hidden: int) -> None:
        super().__init__(hidden, hidden)
        self.sender = nn.Linear(hidden, hidden, bias=False)

    def forward(self, x: Tensor, more: Tensor | float = 0.0) -> Tensor:
        """From nodes `(batch, n, hidden)` to pairs `(batch, sender, receiver, hidden)`; `more` is added first."""
        return self.after(self.sender(x)[:, :, None] + self.first(x)[:, None] + more)


class Encoder(nn.Module):
    """Scores of all ordered pairs from their motion: nodes, pairs, nodes, pairs with what they were before."""

    def __init__(self, frames: int, hidden: int) -> None:
        super().__init__()
        self.node, self.pair = Mlp(2 * frames, hidden), PairMlp(hidden)
        self.node2, self.pair2 = Mlp(hidden, hidden), PairMlp(hidden)
        self.skip = nn.Linear(hidden, hidden, bias=False)
        self.out = nn.Linear(hidden, 1)

    def forward(self, frames: Tensor) -> Tensor:
        """From `(batch, frames, n, 2)` to `(batch, n, n)`; the diagonal means nothing."""
        n = frames.shape[2]
        off = 1 - torch.eye(n)[:, :, None]
        pairs = self.pair(self.node(frames.transpose(1, 2).flatten(2)))
        h = self.node2((pairs * off).sum(1) / n)
        return self.out(self.pair2(h, self.skip(pairs))).squeeze(-1)


# ---- decoder -----------------------------------------------------------------------------------------


class Decoder(nn.Module):
    """The next positions, from messages along edges and other messages where there is none."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.sender = nn.Linear(2, 2 * hidden, bias=False)  # edges, then pairs without one
        self.receiver = nn.Linear(2, 2 * hidden)
        self.edge, self.none = nn.Linear(hidden, hidden), nn.Linear(hidden, hidden)
        self.node = nn.Sequential(
            nn.Linear(2 + hidden, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 2)
        )  # fmt: skip

    def forward(self, x: Tensor, z: Tensor) -> Tensor:
        """Positions `(batch, starts, n, 2)` one frame on, given edges `(batch, n, n)` [sender, receiver]."""
        off = 1 - torch.eye(z.shape[-1])
        total = x.new_zeros(())
        ends = zip(self.sender(x).chunk(2, -1), self.receiver(x).chunk(2, -1), strict=True)
        kinds = ((z * off, self.edge), ((1 - z) * off, self.none))
        for (kind, layer), (sender, receiver) in zip(kinds, ends, strict=True):
            pairs = (
                receiver[..., None, :] + sender[..., None, :, :]
            ).relu_()  # (..., receiver, sender, hidden)
            weight = kind.mT[:, None]
            sums = (weight[..., None, :] @ pairs).squeeze(-2)
            # Eq. (1): the last layer of a message acts on the sum of messages
            total = total + linear(sums, layer.weight) + weight.sum(-1, keepdim=True) * layer.bias
        return x + self.node(torch.cat([x, total], -1))


def roll_out(decoder: Decoder, frames: Tensor, z: Tensor, ahead: int) -> Tensor:
    """All frames but the first, predicted at most `ahead` frames on from one that was seen."""
    last = frames.shape[1] - 1
    x, seen = frames[:, :last:ahead], []  # no start from which there is nothing to predict
    for _ in range(min(ahead, last)):
        x = decoder(x, z)
        seen.append(x)
    return torch.stack(seen, 2).flatten(1, 2)[:, :last]


def negative_log_likelihood(predicted: Tensor, frames: Tensor) -> Tensor:
    """Gaussian, without its constant, summed over frames and coordinates, a node: `(batch,)`."""
    error = (predicted - frames[:, 1:]).square().sum((1, 2, 3))
    return error / (2 * VARIANCE * frames.shape[2])
