"""Tabular models of sequences, small enough to list every sequence, and exact laws over the list."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

Leaf = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Tabular:
    """Logits for every beginning, at random: `table[name of the beginning]`, `(nodes, vocabulary)`."""

    table: Tensor
    max_len: int
    eos: int

    @classmethod
    def random(
        cls, vocabulary: int, max_len: int, *, scale: float = 1.5, seed: int = 0, dtype=torch.float64
    ) -> Tabular:
        nodes = sum(vocabulary**i for i in range(max_len))
        g = torch.Generator().manual_seed(seed)
        table = scale * torch.randn(nodes, vocabulary, generator=g, dtype=dtype)
        return cls(table, max_len, vocabulary - 1)

    def __repr__(self) -> str:
        return f"{len(self.leaves)} sequences"

    @property
    def vocabulary(self) -> int:
        return self.table.shape[1]

    def step(self, tokens: Tensor | None, state: Tensor) -> tuple[Tensor, Tensor]:
        """The state is the number of the beginning: children of i are i * vocabulary + 1, ..."""
        if tokens is not None:
            state = state * self.vocabulary + tokens + 1
        return self.table[state.clamp(max=len(self.table) - 1)], state

    def start(self, rows: int = 1) -> Tensor:
        return torch.zeros(rows, dtype=torch.int64)

    @property
    def options(self) -> dict[str, int]:
        return {"eos": self.eos, "max_len": self.max_len}

    @cached_property
    def leaves(self) -> list[Leaf]:
        """Every sequence: it ends by `eos`, or at `max_len`."""
        inner = [token for token in range(self.vocabulary) if token != self.eos]
        found: list[Leaf] = []
        for length in range(self.max_len):
            found += [(*path, self.eos) for path in itertools.product(inner, repeat=length)]
        return found + list(itertools.product(inner, repeat=self.max_len))

    def log_prob(self, table: Tensor | None = None) -> Tensor:
        """Of each leaf; differentiable in `table`."""
        rows = (self.table if table is None else table).log_softmax(-1)
        return torch.stack([rows[self._nodes(leaf), list(leaf)].sum() for leaf in self.leaves])

    def _nodes(self, leaf: Leaf) -> list[int]:
        node, nodes = 0, []
        for token in leaf:
            nodes.append(node)
            node = node * self.vocabulary + token + 1
        return nodes

    @cached_property
    def _index(self) -> Tensor:
        """Leaf of each padded sequence, read as a number to the base of the vocabulary."""
        table = torch.full((self.vocabulary**self.max_len,), -1)
        for place, leaf in enumerate(self.leaves):
            table[self._code(torch.tensor(leaf + (self.eos,) * (self.max_len - len(leaf))))] = place
        return table

    def _code(self, tokens: Tensor) -> Tensor:
        powers = self.vocabulary ** torch.arange(self.max_len)
        return (tokens * powers).sum(-1)

    def which(self, tokens: Tensor) -> Tensor:
        """The number of each sequence in `leaves`; tokens `(*batch, length)` padded with `eos`."""
        missing = self.max_len - tokens.shape[-1]
        padded = torch.nn.functional.pad(tokens, (0, missing), value=self.eos)
        return self._index[self._code(padded)]


def inclusion(p: Tensor, k: int, nodes: int = 600) -> Tensor:
    r"""P(item i is among k draws without replacement), from the exponential race.

    Item i arrives at time x with density $p_i e^{-p_i x}$, and is drawn if fewer than k others came before, each of
    which did so with probability $1 - e^{-p_j x}$.
    """
    q = p.double().numpy()
    y = np.linspace(-25.0, math.log(40.0 / q.min()), nodes)
    x = np.exp(y)
    early = -np.expm1(-q[:, None] * x)  # (items, nodes)
    result = np.empty_like(q)
    for i in range(len(q)):
        counts = np.zeros((k, nodes))  # P(c others before x), c < k
        counts[0] = 1.0
        for j in range(len(q)):
            if j != i:
                counts[1:] = counts[1:] * (1 - early[j]) + counts[:-1] * early[j]
                counts[0] *= 1 - early[j]
        result[i] = np.trapezoid(counts.sum(0) * q[i] * np.exp(-q[i] * x) * x, y)
    return torch.from_numpy(result)


def pair_law(p: Tensor) -> Tensor:
    """P(first = i, second = j)."""
    law = p[:, None] * p[None, :] / (1 - p[:, None])
    return law.fill_diagonal_(0.0)
