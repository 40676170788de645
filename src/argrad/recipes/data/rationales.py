"""Reviews with a score and the words that explain it: generated, from film reviews, or BeerAdvocate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import torch
from torch import Tensor

from argrad.recipes.data import beer, text
from argrad.recipes.data.grammar import Review, film_reviews, hidden_among

PAD, UNKNOWN = "", text.UNKNOWN  # words 0 and 1 of every vocabulary
NAMES = ("generated", "movies")


@dataclass(frozen=True)
class Part:
    """Reviews of one part, padded to the longest.

    Attributes:
        tokens: word numbers, int64, `(reviews, length)`; 0 where there is no word.
        score: from 0 to 1, float32, `(reviews,)`.
        rationale: True on the words that explain the score, `(reviews, length)`.
    """

    tokens: Tensor
    score: Tensor
    rationale: Tensor


@dataclass(frozen=True)
class Rationales:
    """Reviews to train on, reviews whose rationale is known to test with, and what the numbers of words mean."""

    words: tuple[str, ...]
    train: Part
    test: Part
    vectors: Tensor | None  # of the words, where they come with the data
    source: str


def load(name: str, reviews: int, *, aspect: int = 1) -> Rationales:
    """Reviews by name, or the BeerAdvocate files of a folder.

    Args:
        name: `generated`, `movies` (files of `text/MR` and `text/SUBJ`), or a folder.
        reviews: at most so many to train on.
        aspect: which of BeerAdvocate's scores (0 look, 1 smell, 2 palate).
    """
    if name == "generated":
        g = Random(0)
        train, test = film_reviews(reviews, g), film_reviews(1000, g)
        return _numbered(train, test, 1, "a grammar of film reviews, generator seed 0")
    if name == "movies":
        return _movies(reviews)
    if not Path(name).expanduser().is_dir():
        raise text.DataError(
            f"there are no reviews {name!r}; there are {', '.join(NAMES)}, or give the folder of BeerAdvocate's files."
        )
    found = beer.read(Path(name).expanduser(), aspect, reviews)
    return _numbered(found.train, found.test, 5, f"BeerAdvocate from {name}", found.vectors)


# ---- one opinion among what happens in films ---------------------------------------------------------

_LONGEST = 24  # words of a sentence; what is longer is cut
_OBJECTIVE = 4  # sentences without an opinion a review


def _movies(reviews: int) -> Rationales:
    """A sentence of a film review (Pang and Lee's polarity data) among objective ones (their plots)."""
    good, bad, plots = (
        _sentences(name) for name in ("MR/rt-polarity.pos", "MR/rt-polarity.neg", "SUBJ/subj.objective")
    )
    g = Random(0)
    parts = [_cut(sentences, g) for sentences in (good, bad, plots)]  # no sentence is in both parts
    train, test = ([part[i] for part in parts] for i in (0, 1))
    source = "Pang and Lee's film reviews (2004, 2005), one opinion among four sentences of plots"
    return _numbered(_mixed(train, reviews, g), _mixed(test, 1000, g), 3, source)


def _sentences(file: str) -> list[list[str]]:
    return [s[:_LONGEST] for s in text.tokens(text.find(file), whole=True) if len(s) >= 5]


def _cut(sentences: list[list[str]], g: Random) -> tuple[list[list[str]], list[list[str]]]:
    shuffled = g.sample(sentences, len(sentences))
    cut = len(shuffled) // 10
    return shuffled[cut:], shuffled[:cut]


def _mixed(parts: Sequence[list[list[str]]], reviews: int, g: Random) -> list[Review]:
    """Good and bad opinions in turn, each time all were used among other plots."""
    good, bad, plots = parts
    made = []
    for i in range(reviews):
        side = good if i % 2 == 0 else bad
        others = [g.choice(plots) for _ in range(_OBJECTIVE)]
        made.append(hidden_among(side[(i // 2) % len(side)], others, float(i % 2 == 0), g))
    return made


# ---- words to numbers --------------------------------------------------------------------------------


def _numbered(
    train: Sequence[Review],
    test: Sequence[Review],
    min_count: int,
    source: str,
    vectors: dict[str, Sequence[float]] | None = None,
) -> Rationales:
    """Words seen in fewer than `min_count` training reviews are one word, `<unk>`."""
    counts = Counter(word for review in train for word in set(review.words))
    keep: Callable[[str], bool] = (
        (lambda w: counts[w] >= min_count) if vectors is None else vectors.__contains__
    )
    words = [PAD, UNKNOWN, *sorted(filter(keep, counts), key=lambda w: (-counts[w], w))]
    number = {word: i for i, word in enumerate(words)}
    table = None
    if vectors:
        size = len(next(iter(vectors.values())))
        table = torch.tensor([vectors.get(w, [0.0] * size) for w in words])
    return Rationales(tuple(words), _part(train, number), _part(test, number), table, source)


def _part(reviews: Sequence[Review], number: dict[str, int]) -> Part:
    length = max((len(r.words) for r in reviews), default=0)
    tokens = torch.zeros(len(reviews), length, dtype=torch.int64)
    rationale = torch.zeros(len(reviews), length, dtype=torch.bool)
    for i, review in enumerate(reviews):
        tokens[i, : len(review.words)] = torch.tensor([number.get(w, 1) for w in review.words])
        for first, last in review.spans:
            rationale[i, first:last] = True
    return Part(tokens, torch.tensor([r.score for r in reviews]), rationale)
