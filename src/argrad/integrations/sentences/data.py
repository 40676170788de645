"""Sentences to train on: wikitext, SNLI, a file of one's own, or generated ones that need no file.

An example is one sentence (unsupervised), or three: an anchor, what it entails, what contradicts it.
"""

from __future__ import annotations

import csv
import json
import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random

from argrad._errors import InputError
from argrad.integrations.sentences.sts import Pairs

Example = tuple[str, ...]  # of one sentence, or of three
_COLUMNS = ("sent0", "sent1", "hard_neg")  # of SimCSE's csv files
_JOINED = {" @-@ ": "-", " @,@ ": ",", " @.@ ": ".", "<unk>": "something"}  # as wikitext was cut


def wiki_sentences(
    folder: str | os.PathLike[str], *, shortest: int = 6, longest: int = 40
) -> list[Example]:
    """Sentences of `shortest` to `longest` words from what is there of wikitext (train.txt, valid.txt, test.txt)."""
    root = Path(folder)
    paths = [p for name in ("train", "valid", "test") if (p := root / f"{name}.txt").exists()]
    if not paths:
        raise InputError(f"{root} has no train.txt, valid.txt or test.txt of wikitext.")
    lines = (line.strip() for path in paths for line in _text(path).split("\n"))
    found = (s for line in lines if not line.startswith("=") for s in line.split(" . "))
    return [(_plain(s),) for s in found if shortest <= len(s.split()) <= longest]


def nli_triples(folder: str | os.PathLike[str]) -> list[Example]:
    """Premise, what it entails and what contradicts it, from `s1.*`, `s2.*` and `labels.*` of SNLI."""
    root, found = Path(folder), []
    parts = [p.suffix for p in sorted(root.glob("s1.*"))]
    if not parts:
        raise InputError(f"{root} has no s1.train, s1.dev or s1.test. Put the files of SNLI there.")
    for part in parts:
        columns = (_text(root / f"{name}{part}").splitlines() for name in ("s1", "s2", "labels"))
        said: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
        for premise, hypothesis, label in zip(*columns, strict=True):
            said[premise.strip()][label.strip()].append(hypothesis.strip())
        for premise, by in said.items():
            both = zip(by["entailment"], by["contradiction"], strict=False)
            found += [(premise, yes, no) for yes, no in both]
    return found


def read_examples(path: str | os.PathLike[str]) -> list[Example]:
    """A file of one's own: `.txt`, a sentence a line; `.csv` or `.json` (a line each) with `sent0,sent1,hard_neg`."""
    file = Path(path)
    readers: dict[str, Callable[[Path], Iterator[Example]]] = {
        ".txt": _txt,
        ".csv": _csv,
        ".json": _json,
    }
    if file.suffix not in readers:
        raise InputError(f"{file} must end in {', '.join(readers)}, which say how it is read.")
    found = list(readers[file.suffix](file))
    if not found:
        raise InputError(f"{file} holds no sentences.")
    if len({len(example) for example in found}) > 1:
        raise InputError(f"{file} has rows of different lengths. Give all a hard negative, or none.")
    return found


def _txt(path: Path) -> Iterator[Example]:
    return ((line.strip(),) for line in _text(path).split("\n") if line.strip())


def _csv(path: Path) -> Iterator[Example]:
    yield from (_row(path, row) for row in csv.DictReader(_text(path).splitlines()))


def _json(path: Path) -> Iterator[Example]:
    yield from (_row(path, json.loads(line)) for line in _text(path).split("\n") if line.strip())


def _row(path: Path, row: dict[str, str]) -> Example:
    found = tuple(row[c].strip() for c in _COLUMNS if row.get(c))
    if not found:
        raise InputError(f"{path} needs columns {', '.join(_COLUMNS)}; got {', '.join(row)}.")
    return found


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InputError(f"{path} is not there.") from None


def _plain(text: str) -> str:
    text = f" {text.strip().removesuffix(' .')} ."
    for cut, joined in _JOINED.items():
        text = text.replace(cut, joined)
    return text.strip()


# ---- generated -----------------------------------------------------------------------------------

_SLOTS = (
    (("man", "guy"), ("woman", "lady"), ("dog", "puppy"), ("child", "kid"), ("cat", "kitten")),
    (
        ("eats", "devours"),
        ("paints", "draws"),
        ("carries", "holds"),
        ("watches", "observes"),
        ("buys", "gets"),
    ),
    (("bread", "loaf"), ("car", "vehicle"), ("picture", "image"), ("stone", "rock"), ("ship", "boat")),
    (("street", "road"), ("house", "home"), ("shop", "store"), ("forest", "woods"), ("sea", "ocean")),
)  # two words for each thing: the second means the same
_FRAME = (
    "the {} {} a {} in the {}",
    "a {} {} the {} near the {} .",
    "there , one {} {} some {} at the {}",
)
_Meaning = tuple[int, ...]


def _say(meaning: _Meaning, random: Random) -> str:
    words = [random.choice(slot[i]) for slot, i in zip(_SLOTS, meaning, strict=True)]
    return random.choice(_FRAME).format(*words)


def _meaning(random: Random) -> _Meaning:
    return tuple(random.randrange(len(slot)) for slot in _SLOTS)


def _changed(meaning: _Meaning, slots: int, random: Random) -> _Meaning:
    """Another meaning that differs in so many places."""
    found = list(meaning)
    for i in random.sample(range(len(_SLOTS)), slots):
        found[i] = (found[i] + random.randrange(1, len(_SLOTS[i]))) % len(_SLOTS[i])
    return tuple(found)


def generated_examples(count: int, *, triples: bool = False, seed: int = 0) -> list[Example]:
    """Sentences of a small grammar, or triples: said, said in other words, something else said.

    Examples:
        >>> generated_examples(1)
        [('a kid observes the loaf near the store .',)]
    """
    random = Random(seed)
    meanings = [_meaning(random) for _ in range(count)]
    if not triples:
        return [(_say(m, random),) for m in meanings]
    return [(_say(m, random), _say(m, random), _say(_changed(m, 2, random), random)) for m in meanings]


def generated_sts(count: int, *, seed: int = 1) -> dict[str, Pairs]:
    """All sets that `load_sts` has, with `count` generated pairs each; the score is how much is meant in common."""
    names: Sequence[str] = [f"STS{year}" for year in range(12, 17)]
    names = [
        *names,
        *(f"{task}-{split}" for task in ("STSB", "SICK") for split in ("train", "dev", "test")),
    ]
    random = Random(seed)
    return {name: Pairs.of(_pair(random) for _ in range(count)) for name in names}


def _pair(random: Random) -> tuple[str, str, float, str]:
    meaning, slots = _meaning(random), random.randrange(len(_SLOTS) + 1)
    other = _changed(meaning, slots, random)
    return _say(meaning, random), _say(other, random), 5.0 * (1 - slots / len(_SLOTS)), "generated"
