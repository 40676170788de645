"""Pairs of sentences with a similarity that people gave: STS12 to STS16, STS-B and SICK, as SentEval lays them out.

sts/STS12-en-test/STS.input.MSRpar.txt, STS.gs.MSRpar.txt, ...        sts/STSBenchmark/sts-dev.csv, ...
sts/SICK/SICK_train.txt, SICK_trial.txt, SICK_test_annotated.txt
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from argrad._errors import InputError

PARTS = {
    "STS12": ("MSRpar", "MSRvid", "SMTeuroparl", "surprise.OnWN", "surprise.SMTnews"),
    "STS13": ("FNWN", "headlines", "OnWN"),
    "STS14": ("deft-forum", "deft-news", "headlines", "images", "OnWN", "tweet-news"),
    "STS15": ("answers-forums", "answers-students", "belief", "headlines", "images"),
    "STS16": ("answer-answer", "headlines", "plagiarism", "postediting", "question-question"),
}
_STSB = {"train": "sts-train.csv", "dev": "sts-dev.csv", "test": "sts-test.csv"}
_SICK = {"train": "SICK_train.txt", "dev": "SICK_trial.txt", "test": "SICK_test_annotated.txt"}
_LETTERS = re.compile(r"[\W_]+")


@dataclass(frozen=True)
class Pairs:
    """Sentences, partner sentences, and how similar people found them.

    Attributes:
        first: a sentence of each pair.
        second: its partner.
        score: of each pair; larger is more similar.
        part: the source of each pair (headlines, forum answers, ...).
    """

    first: tuple[str, ...]
    second: tuple[str, ...]
    score: tuple[float, ...]
    part: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.score)

    @classmethod
    def of(cls, rows: Iterable[tuple[str, str, float, str]]) -> Pairs:
        """From rows of two sentences, a score and a source."""
        columns = list(zip(*rows, strict=True)) or [(), (), (), ()]
        return cls(*columns)

    def rows(self) -> Iterator[tuple[str, str, float, str]]:
        """Pair by pair."""
        return zip(self.first, self.second, self.score, self.part, strict=True)

    def without(self, others: Pairs) -> Pairs:
        """Those that `others` does not hold, in either order; case, spaces and punctuation do not count."""
        known = {key(a, b) for a, b, *_ in others.rows()}
        return Pairs.of(row for row in self.rows() if key(row[0], row[1]) not in known)


def join(*sets: Pairs) -> Pairs:
    """All pairs of several sets."""
    return Pairs.of(row for pairs in sets for row in pairs.rows())


def key(first: str, second: str) -> frozenset[str]:
    """What is the same for the same pair: letters and digits in lower case, in no order."""
    return frozenset(_LETTERS.sub("", sentence.lower()) for sentence in (first, second))


def load_sts(
    folder: str | os.PathLike[str], tasks: Iterable[str] = (*PARTS, "STSB", "SICK")
) -> dict[str, Pairs]:
    """Read the sets: `STS12` to `STS16`, and `STSB-train`, `-dev`, `-test`, `SICK-train`, `-dev`, `-test`.

    Args:
        folder: the one that has `STS12-en-test`, `STSBenchmark` and `SICK`.
        tasks: only these, of `STS12` ... `STS16`, `STSB`, `SICK`.
    """
    root, found = Path(folder), {}
    for task in tasks:
        if task in PARTS:
            found[task] = Pairs.of(_sts(root / f"{task}-en-test", PARTS[task]))
        elif task in ("STSB", "SICK"):
            files, read = (_STSB, _stsb) if task == "STSB" else (_SICK, _sick)
            place = root / ("STSBenchmark" if task == "STSB" else "SICK")
            found |= {f"{task}-{split}": Pairs.of(read(place / name)) for split, name in files.items()}
        else:
            raise InputError(
                f"there is no STS task {task!r}; there are {', '.join(PARTS)}, STSB, SICK."
            )
    return found


def sentences(sets: Mapping[str, Pairs]) -> list[str]:
    """Every sentence once, the short ones first, so that batches need little padding."""
    unique = {s for pairs in sets.values() for s in (*pairs.first, *pairs.second)}
    return sorted(unique, key=lambda s: (len(s), s))


def _sts(folder: Path, parts: Iterable[str]) -> Iterator[tuple[str, str, float, str]]:
    for part in parts:
        texts, gold = _lines(folder / f"STS.input.{part}.txt"), _lines(folder / f"STS.gs.{part}.txt")
        if len(texts) != len(gold):
            raise InputError(
                f"{folder}: part {part} has {len(texts)} pairs and {len(gold)} scores. Copy it anew."
            )
        for text, score in zip(texts, gold, strict=True):
            if score.strip():  # some pairs were not judged
                first, second = text.split("\t")[:2]
                yield first, second, float(score), part


def _stsb(path: Path) -> Iterator[tuple[str, str, float, str]]:
    for line in _lines(path):
        genre, _, _, _, score, first, second = line.split("\t")[:7]
        yield first, second, float(score), genre


def _sick(path: Path) -> Iterator[tuple[str, str, float, str]]:
    for line in _lines(path)[1:]:
        _, first, second, score = line.split("\t")[:4]
        yield first, second, float(score), "SICK"


def _lines(path: Path) -> list[str]:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InputError(
            f"{path} is not there. The folder must hold the sets as SentEval lays them out (STS12-en-test, ..., "
            "STSBenchmark, SICK)."
        ) from None
    return text.removesuffix("\n").split("\n")  # splitlines would cut at U+2028 as well
