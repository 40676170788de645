r"""Parsing without trees to learn from: who belongs to whom is a latent graph, and a network computes along it.

$$ \theta_{hc} = \langle H_h, M_c\rangle + b_{c - h}, \qquad
   e_h \leftarrow g\Big(x_h + V \sum_c z_{hc}\, e_c\Big) \quad\text{five times}, \qquad \hat y = f(e_0) \tag{1} $$
$H$ and $M$ are two views of an LSTM over kinds of tokens, $z$ is drawn by the law of the column, token 0 is read. An
operator computes the same from what it is told in every round, so what is learnt of short lists holds within others;
digits and brackets do not listen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import argrad as ag
from argrad.recipes.data.listops import OPERATORS, TOKENS

# ---- laws over graphs --------------------------------------------------------------------------------


def _both_real(valid: Tensor) -> Tensor:
    """Pairs `(batch, n, n)` of two different tokens that are there."""
    n = valid.shape[-1]
    return valid[:, :, None] & valid[:, None] & ~torch.eye(n, dtype=torch.bool)


def _spanning(valid: Tensor) -> Tensor:
    """What a tree may use: pairs of tokens, and for each token that is not there one arc from the root."""
    from_root = torch.zeros_like(_both_real(valid))
    from_root[:, 0] = ~valid
    return _both_real(valid) | from_root


def _matrix(z: Tensor, n: int) -> Tensor:
    return z if z.shape[-1] == n else z.unflatten(-1, (n, n))


Laws = Callable[[Tensor, Tensor], ag.Perturbed | ag.Gibbs]  # from scores [head, child] and valid


def _bits(scores: Tensor, valid: Tensor) -> ag.Perturbed:
    return ag.Perturbed(ag.Bits(), scores.flatten(1), mask=_both_real(valid).flatten(1))


def _undirected_bits(scores: Tensor, valid: Tensor) -> ag.Perturbed:
    once = _both_real(valid).triu()
    return ag.Perturbed(ag.Bits(), ((scores + scores.mT) / 2).flatten(1), mask=once.flatten(1))


def _tree(scores: Tensor, valid: Tensor) -> ag.Perturbed:
    allowed = _spanning(valid)
    return ag.Perturbed(ag.SpanningTree(), (scores + scores.mT) / 2, mask=allowed | allowed.mT)


def _arborescence(noise: ag.Noise) -> Laws:
    return lambda scores, valid: ag.Perturbed(
        ag.Arborescence(root=0), scores, noise=noise, mask=_spanning(valid)
    )


def _gibbs(scores: Tensor, valid: Tensor) -> ag.Gibbs:
    return ag.Gibbs(ag.Arborescence(root=0), scores, mask=_spanning(valid))


@dataclass(frozen=True)
class Way:
    """How a column comes to its graph; no law means that the true one is given, or that there is none."""

    law: Laws | None = None
    undirected: bool = False
    estimator: Literal["relaxed", "leave-one-out"] = "relaxed"

    def graph(self, z: Tensor, valid: Tensor) -> Tensor:
        """Who tells whom, `(..., n, n)` [head, child], of what the law has drawn; tokens only."""
        z = _matrix(z, valid.shape[-1])
        if self.undirected and self.law is _undirected_bits:
            z = z + z.mT
        return z * _both_real(valid)


LSTM, TRUE, LEAVE_ONE_OUT = "LSTM", "Ground-truth edges", "Arborescence (leave-one-out)"
DIRECTED, GUMBEL, NEG_EXP = "Indep. directed edges", "Arborescence (Gumbel)", "Arborescence (Neg. Exp.)"
WAYS: Mapping[str, Way] = {
    LSTM: Way(),
    "Indep. undirected edges": Way(_undirected_bits, undirected=True),
    "Spanning tree": Way(_tree, undirected=True),
    DIRECTED: Way(_bits),
    NEG_EXP: Way(_arborescence(ag.NegExponential())),
    "Arborescence (Gaussian)": Way(_arborescence(ag.Normal())),
    GUMBEL: Way(_arborescence(ag.Gumbel())),
    LEAVE_ONE_OUT: Way(_gibbs, estimator="leave-one-out"),
    TRUE: Way(),
}


# ---- networks ----------------------------------------------------------------------------------------


def _mlp(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, outputs))


_KINDS = torch.tensor([0, 1, *(2 for _ in OPERATORS), *(3 for _ in range(10))])  # of `TOKENS`
_OPERATOR = 2
_FAR = 64  # arcs over more tokens are scored alike


class Archer(nn.Module):
    """Scores of arcs, [head, child], from an LSTM that reads kinds of tokens, and from how far apart they are.

    It sees operators, digits and brackets, not which: trees do not depend on that, and an LSTM that sees values can do
    the arithmetic itself and only pass the answer on, along any graph.
    """

    def __init__(self, d: int) -> None:
        super().__init__()
        self.distance = nn.Parameter(torch.zeros(2 * _FAR + 1))
        self.embedding = nn.Embedding(int(_KINDS.max()) + 1, d, padding_idx=0)
        self.lstm = nn.LSTM(d, d, batch_first=True)
        self.head, self.child = nn.Linear(d, d), nn.Linear(d, d)

    def forward(self, tokens: Tensor) -> Tensor:
        """`(batch, n, n)`."""
        seen, _ = self.lstm(self.embedding(_KINDS[tokens]))
        place = torch.arange(tokens.shape[1])
        apart = (place - place[:, None]).clamp(-_FAR, _FAR) + _FAR
        scores = self.head(seen) @ self.child(seen).mT / math.sqrt(seen.shape[-1])
        return scores + self.distance[apart]


class Computer(nn.Module):
    """The value of an expression from its tokens and a graph, Eq. (1)."""

    def __init__(self, d: int, rounds: int) -> None:
        super().__init__()
        self.rounds = rounds
        self.embedding = nn.Embedding(len(TOKENS), d, padding_idx=0)
        self.told = nn.Linear(d, d, bias=False)
        self.state = nn.Sequential(nn.ReLU(), nn.Linear(d, d), nn.ReLU())
        self.read = _mlp(d, d, 10)

    def forward(self, tokens: Tensor, z: Tensor) -> Tensor:
        """Logits `(..., batch, 10)` for graphs `(..., batch, n, n)`."""
        token = self.embedding(tokens)
        listens = (_KINDS[tokens] == _OPERATOR)[..., None]  # digits and brackets stand for themselves
        e = self.state(token.expand(*z.shape[:-1], -1))
        for _ in range(self.rounds):
            e = self.state(token + listens * (z @ self.told(e)))
        return self.read(e[..., 0, :])


class LastState(nn.Module):
    """The baseline: an LSTM over the tokens, read at the last one."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(len(TOKENS), d, padding_idx=0)
        self.lstm = nn.LSTM(d, d, batch_first=True)
        self.read = _mlp(d, d, 10)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits `(batch, 10)`."""
        seen, _ = self.lstm(self.embedding(tokens))
        last = (tokens > 0).sum(-1) - 1
        return self.read(seen[torch.arange(len(tokens)), last])


class Parser(nn.Module):
    """A latent graph and what is computed along it."""

    def __init__(self, way: Way, d: int, rounds: int) -> None:
        super().__init__()
        self.way, self.archer, self.computer = way, Archer(d), Computer(d, rounds)

    def law(self, tokens: Tensor) -> ag.Perturbed | ag.Gibbs:
        """Over graphs of the tokens."""
        assert self.way.law is not None
        return self.way.law(self.archer(tokens), tokens > 0)

    def cost(self, tokens: Tensor, value: Tensor, z: Tensor) -> Tensor:
        """Cross-entropy `(..., batch)` of the value given draws of the law, samples first."""
        logits = self.computer(tokens, self.way.graph(z, tokens > 0))
        target = value.expand(logits.shape[:-1])
        return cross_entropy(logits.flatten(0, -2), target.flatten(), reduction="none").view(
            target.shape
        )
