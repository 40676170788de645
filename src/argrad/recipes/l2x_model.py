r"""Which k words explain a score: scores of words, seven ways to relax the choice, a prediction from what is chosen.

$$ \hat y = f\Big(\frac1k \sum_i z_i\, e_i\Big), \qquad z = \arg\max_{z \in Z} \langle \theta(x) + \varepsilon, z\rangle
   \text{, relaxed in training} $$
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn

import argrad as ag

Kind = Literal["simple", "complex"]
CORRELATED = "Corr. Top k"


def _subset(
    regularizer: ag.Regularizer, scores: Tensor, mask: Tensor, k: int, tau: float, g: torch.Generator
) -> Tensor:
    q = ag.Perturbed(ag.Subset(k), scores, mask=mask)
    return q.rsample(tau=tau, regularizer=regularizer, generator=g)


def _l2x(scores: Tensor, mask: Tensor, k: int, tau: float, g: torch.Generator) -> Tensor:
    return ag.presets.l2x(scores, k, tau, mask=mask, generator=g)


def _chain(scores: Tensor, mask: Tensor, k: int, tau: float, g: torch.Generator) -> Tensor:
    q = ag.Perturbed(ag.ChainSubset(k), scores, mask=with_pairs(mask))
    return q.rsample(tau=tau, generator=g)[..., : mask.shape[-1]]


RELAXATIONS: Mapping[str, Callable[..., Tensor]] = {
    "L2X": _l2x,
    "SoftSub": partial(_subset, ag.SuccessiveSoftmax()),
    "Euclid. Top k": partial(_subset, ag.Euclidean()),
    "Cat. Ent. Top k": partial(_subset, ag.Entropy()),
    "Bin. Ent. Top k": partial(_subset, ag.BinaryEntropy()),
    "E.F. Ent. Top k": partial(_subset, ag.ExponentialFamily()),
    CORRELATED: _chain,
}  # scores, mask, k, tau, generator -> how much each word is chosen, `(batch, length)`


def with_pairs(mask: Tensor) -> Tensor:
    """Which parts of a `ChainSubset` are allowed: words, then neighbours that are both words."""
    return torch.cat([mask, mask[..., 1:] & mask[..., :-1]], -1)


class Context(nn.Module):
    """What L2X sees of a word: itself, its neighbourhood, and the strongest of every feature in the review."""

    def __init__(self, d: int, hidden: int) -> None:
        super().__init__()
        self.first = nn.Conv1d(d, hidden, 3, padding=1)
        self.near = nn.Sequential(
            nn.Conv1d(hidden, hidden, 3, padding=1),
            nn.ReLU(),
            nn.Conv1d(hidden, hidden, 3, padding=1),
            nn.ReLU(),
        )
        self.far = nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU())
        self.join = nn.Sequential(nn.Conv1d(2 * hidden, hidden, 1), nn.ReLU())

    def forward(self, vectors: Tensor) -> Tensor:
        """From `(batch, length, d)` to `(batch, length, hidden)`."""
        first = self.first(vectors.mT).relu()
        near, far = self.near(first), self.far(first.amax(-1))
        return self.join(torch.cat([near, far[..., None].expand_as(near)], 1)).mT


class Explainer(nn.Module):
    """Word vectors, scores of words (and of neighbours, for the correlated choice), and the prediction.

    Args:
        words: size of the vocabulary; word 0 is none.
        d: size of a word's vector.
        hidden: units of the prediction, and of the context.
        kind: `simple` scores a word by itself, `complex` in its context.
        pairs: also score neighbours.
        vectors: of the words, kept as they are; None to learn them.
        spread: standard deviation of the vectors at first, where they are learnt.
    """

    def __init__(
        self,
        words: int,
        d: int,
        hidden: int,
        kind: Kind,
        pairs: bool,
        vectors: Tensor | None = None,
        spread: float = 1.0,
    ) -> None:
        super().__init__()
        if vectors is None:
            self.vectors = nn.Embedding(words, d, padding_idx=0)
            with torch.no_grad():
                self.vectors.weight *= spread
        else:
            self.vectors, d = nn.Embedding.from_pretrained(vectors, padding_idx=0), vectors.shape[1]
        self.context = Context(d, hidden) if kind == "complex" else nn.Identity()
        size = hidden if kind == "complex" else d
        self.unary = nn.Linear(size, 1)
        self.pairwise = nn.Linear(2 * size, 1) if pairs else None
        self.predict = nn.Sequential(nn.Linear(d, hidden), nn.ReLU(), nn.Linear(hidden, 1))

    def scores(self, tokens: Tensor) -> Tensor:
        """Of the words `(batch, length)`; with pairs `(batch, 2 * length - 1)`, as `ChainSubset` takes them."""
        seen = self.context(self.vectors(tokens))
        unary = self.unary(seen).squeeze(-1)
        if self.pairwise is None:
            return unary
        both = torch.cat([seen[:, :-1], seen[:, 1:]], -1)
        return torch.cat([unary, self.pairwise(both).squeeze(-1)], -1)

    def explained(self, tokens: Tensor, z: Tensor, k: int) -> Tensor:
        """The score `(batch,)` from 0 to 1 that the mean of the chosen words' vectors predicts."""
        mean = torch.einsum("bl,bld->bd", z, self.vectors(tokens)) / k
        return self.predict(mean).squeeze(-1).sigmoid()

    def chosen(self, tokens: Tensor, k: int) -> Tensor:
        """The k words with the largest scores, without noise: 0 or 1, `(batch, length)`."""
        mask, scores = tokens > 0, self.scores(tokens)
        if self.pairwise is None:
            return ag.Subset(k).argmax(scores, mask=mask)
        return ag.ChainSubset(k).argmax(scores, mask=with_pairs(mask))[..., : tokens.shape[1]]
