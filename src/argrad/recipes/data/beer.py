"""BeerAdvocate's reviews as Lei et al. (2016) prepared them: scores of aspects, annotated rationales, word vectors.

A folder has `reviews.aspectA.train.txt` (five scores from 0 to 1, a tab, words), `annotations.json` (a line of JSON a
review: its words `x`, its scores `y`, and under `"A"` the stretches of words about aspect A) and, if one likes,
`review+wiki.filtered.200.txt` (a word and its vector a line); each may be gzipped. They may not be passed on.
"""

from __future__ import annotations

import gzip
import json
import math
import zlib
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from argrad.recipes.data.grammar import Review
from argrad.recipes.data.places import DataError

LONGEST = 350  # words of a review; what is longer is cut


class Beer(NamedTuple):
    """Reviews with scores to train on, annotated ones to test with, vectors of words if they are there."""

    train: list[Review]
    test: list[Review]
    vectors: dict[str, Sequence[float]] | None


def read(folder: Path, aspect: int, reviews: int) -> Beer:
    """The files of one aspect, at most `reviews` of the training part."""
    lines = _lines(folder, f"reviews.aspect{aspect}.train.txt")
    train = [_scored(folder, line, aspect) for line in islice(lines, reviews)]
    test = [_annotated(folder, line, aspect) for line in _lines(folder, "annotations.json")]
    known = [r for r in test if r.spans]  # a review may say nothing about the aspect
    if not train or not known:
        raise DataError(f"{folder} holds no reviews about aspect {aspect}. Copy its files anew.")
    return Beer(train, known, _vectors(folder))


def _scored(folder: Path, line: str, aspect: int) -> Review:
    numbers, tab, words = line.partition("\t")
    try:
        score = float(numbers.split()[aspect]) if tab else float("nan")
    except (ValueError, IndexError):
        score = float("nan")
    if math.isnan(score):
        raise DataError(
            f"{folder}/reviews.aspect{aspect}.train.txt must have lines of scores, a tab and words; got {line[:60]!r}."
        )
    return Review(words.split()[:LONGEST], score, [])


def _annotated(folder: Path, line: str, aspect: int) -> Review:
    try:
        said = json.loads(line)
        words, score = said["x"][:LONGEST], float(said["y"][aspect])
        spans = [(int(first), min(int(last), LONGEST)) for first, last in said.get(str(aspect), [])]
    except (ValueError, KeyError, TypeError, IndexError):
        raise DataError(
            f"{folder}/annotations.json must have x, y and stretches in every line; got {line[:60]!r}."
        ) from None
    return Review(words, score, [span for span in spans if span[0] < span[1]])


def _vectors(folder: Path) -> dict[str, Sequence[float]] | None:
    name = "review+wiki.filtered.200.txt"
    if not any((folder / file).is_file() for file in (name, f"{name}.gz")):
        return None
    rows = (line.split() for line in _lines(folder, name))
    return {row[0]: [float(x) for x in row[1:]] for row in rows if len(row) > 2}


def _lines(folder: Path, name: str) -> Iterator[str]:
    """Lines that are not empty, of the file or its gzipped form."""
    path = next((p for p in (folder / name, folder / f"{name}.gz") if p.is_file()), None)
    if path is None:
        raise DataError(
            f"there is no {name} or {name}.gz in {folder}. The files are described in argrad/recipes/data/beer.py."
        )
    try:
        with (
            gzip.open(path, "rt", encoding="utf-8")
            if path.suffix == ".gz"
            else path.open(encoding="utf-8") as file
        ):
            yield from (line.strip() for line in file if line.strip())
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise DataError(f"cannot read {path}: {error}. Copy it anew.") from None
