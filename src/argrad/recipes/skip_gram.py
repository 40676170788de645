r"""Skip-gram word vectors with negative sampling, NCE or hierarchical softmax, trained by one small kernel.

Each word $c$ near a word $w$ has to tell $w$ from noise, or find it in a tree, by its vector $v_c$: the losses are
those of `argrad.NegativeSampling`, `argrad.NCE` and `argrad.HierarchicalSoftmax`. A step touches a handful of rows,
so it is done in place by numba; the tests compare it with autograd of those losses.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

import argrad as ag
from argrad import random
from argrad._kernels.threads import run_rows
from argrad._types import Generator
from argrad.losses._huffman import huffman_tree

Loss = Literal["negative sampling", "nce", "hierarchical softmax"]


@dataclass(frozen=True)
class Sentences:
    """Word numbers, sentence after sentence.

    Attributes:
        tokens: int32.
        ends: int64; sentence i is `tokens[ends[i]:ends[i + 1]]`.
    """

    tokens: Tensor
    ends: Tensor

    def __len__(self) -> int:
        return len(self.ends) - 1


class SkipGram(nn.Module):
    r"""Vectors of words, and how they are trained.

    Args:
        counts: of each word in the text, `(words,)`.
        d: size of a vector.
        loss: which.
        k: noise words for each pair; not used by hierarchical softmax.
        window: the farthest neighbour; for each word a size from 1 to this is drawn.
        sample: words more frequent than this share of the text are thinned out, to
            $\sqrt{t/f} + t/f$ of their occurrences; 0 keeps all.
        power: of the counts in the noise law.
        generator: of the first vectors.
    """

    vectors: Tensor
    rows: Tensor
    offset: Tensor

    def __init__(
        self,
        counts: Tensor,
        d: int = 100,
        *,
        loss: Loss = "negative sampling",
        k: int = 5,
        window: int = 5,
        sample: float = 0.0,
        power: float = 0.75,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        n = len(counts)
        self.loss, self.k, self.window = loss, 0 if loss == "hierarchical softmax" else k, window
        # On a megabyte of text the start matters: from half of this, twins find each other 3 points less often.
        self.register_buffer("vectors", (2 * torch.rand(n, d, generator=generator) - 1) / d)
        self.register_buffer("rows", torch.zeros(n, d))  # of words, or of the tree's n - 1 inner nodes
        # what is added to a product of vectors: for NCE, bias - log(k q), whose bias begins at log q
        self.register_buffer("offset", torch.full((n,), -math.log(k) if loss == "nce" else 0.0))
        self._table = ag.Unigram(counts, power)._on(torch.device("cpu"))[0]
        self._path, self._sign = _paths(counts) if self.k == 0 else _NO_PATHS
        self._keep = _keep(counts.double(), sample)

    def learn(
        self, text: Sentences, first: int, last: int, rate: float, generator: Generator = None
    ) -> None:
        """One pass over sentences `first` to `last`, on `torch.get_num_threads()` threads.

        On one thread the result depends on the generator alone. More threads change the vectors without waiting for
        each other, so that runs differ a little.
        """
        from argrad._kernels import skip_gram

        words = int(text.ends[last] - text.ends[first])
        key, row, column = random.words(generator)
        run_rows(
            lambda start, stop, *args: skip_gram.train(first + start, first + stop, *args),
            last - first,
            100 * words,  # numbers touched for each word, at least
            *(text.tokens.numpy(), text.ends.numpy(), self._keep.numpy(), self.window),
            *(self.vectors.numpy(), self.rows.numpy(), self.offset.numpy(), self.loss == "nce"),
            *(self._table.numpy(), self.k, self._path.numpy(), self._sign.numpy()),
            *(rate, key.copy(), row, column),
        )


_NO_PATHS = (torch.zeros(1, 1, dtype=torch.int32), torch.zeros(1, 1, dtype=torch.int8))


def _paths(counts: Tensor) -> tuple[Tensor, Tensor]:
    tree = huffman_tree(counts.double().numpy())
    return tree.path, tree.sign


def _keep(counts: Tensor, sample: float) -> Tensor:
    """The probability of each word to stay, float64."""
    if sample == 0:
        return torch.ones_like(counts)
    frequency = (counts / counts.sum()).clamp(min=1e-300)
    return ((sample / frequency).sqrt() + sample / frequency).clamp(max=1.0)


# ---- what vectors are good for ------------------------------------------------------------------------


def analogies(vectors: Tensor, forms: int, generator: torch.Generator, questions: int = 2000) -> float:
    """Per cent of questions answered: `a` is to `b` as `c` is to which word? (Of a `WalkLanguage`.)

    The answer is the word nearest to b - a + c by angle, the three given ones left out.
    """
    stems = len(vectors) // forms
    s, other = _two_different(stems, questions, generator)
    f, changed = _two_different(forms, questions, generator)
    a, b, c, d = s * forms + f, s * forms + changed, other * forms + f, other * forms + changed
    x = nn.functional.normalize(vectors, dim=-1)
    scores = (x[b] - x[a] + x[c]) @ x.T
    scores.scatter_(1, torch.stack([a, b, c], 1), -math.inf)
    return 100 * (scores.argmax(-1) == d).double().mean().item()


def twins_found(vectors: Tensor, twins: Tensor) -> float:
    """Per cent of pairs `(pairs, 2)` in which each word is the other's nearest neighbour by angle, counted singly."""
    x = nn.functional.normalize(vectors, dim=-1)
    first, second = torch.cat([twins, twins.flip(1)]).unbind(1)
    scores = x[first] @ x.T
    scores.scatter_(1, first[:, None], -math.inf)
    return 100 * (scores.argmax(-1) == second).double().mean().item()


def split_words(
    tokens: Tensor, counts: Tensor, pairs: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Rename every other occurrence, at random, of frequent words: text with twins, and the pairs `(pairs, 2)`.

    Twins mean the same, so their vectors should be neighbours: a question with a known answer in any text. The words
    are those behind the 50 most frequent ones, which go with everything.
    """
    n = len(counts)
    chosen = counts.argsort(descending=True, stable=True)[50 : 50 + pairs]
    twin = torch.arange(n)
    twin[chosen] = n + torch.arange(len(chosen))
    renamed = torch.rand(len(tokens), generator=generator) < 0.5
    return torch.where(renamed, twin[tokens], tokens), torch.stack([chosen, twin[chosen]], 1)


def _two_different(n: int, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    first = torch.randint(n, (count,), generator=generator)
    return first, (first + torch.randint(1, n, (count,), generator=generator)) % n
