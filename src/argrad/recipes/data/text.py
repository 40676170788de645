"""Running text as numbers: Shakespeare, WikiText-2, and the news articles that come with gensim."""

from __future__ import annotations

import importlib.util
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import torch
from torch import Tensor

from argrad.recipes.data import places
from argrad.recipes.data.places import DataError

NAMES = ("shakespeare", "wikitext-2", "gensim")
UNKNOWN, END = "<unk>", "</s>"
_TOKEN = re.compile(r"[a-z]+(?:'[a-z]+)?|[0-9]+|[.,;:!?]")

Sentences = list[list[str]]


@dataclass(frozen=True)
class Text:
    """Sentences of word numbers, in two parts.

    Attributes:
        words: the vocabulary by falling frequency; `<unk>` stands for all that are rarer than asked for.
        train: word numbers, int64, sentence after sentence.
        ends: where sentences of `train` end, beginning with 0: sentence i is `train[ends[i]:ends[i + 1]]`.
        test: the same kind of text, held out; sentence after sentence.
        source: a sentence on where it came from.
    """

    words: tuple[str, ...]
    train: Tensor
    ends: Tensor
    test: Tensor
    source: str


def load(name: str, *, min_count: int = 2, mark_ends: bool = True) -> Text:
    """A text by name; words seen fewer than `min_count` times in training become `<unk>`.

    With `mark_ends` every sentence ends with the word `</s>`, as language models want it.
    """
    train, test, source = read(name)
    if mark_ends:
        train, test = ([[*s, END] for s in part] for part in (train, test))
    counts = Counter(word for sentence in train for word in sentence)
    known = {word: count for word, count in counts.items() if count >= min_count and word != UNKNOWN}
    rare = sum(counts.values()) - sum(known.values())
    # ties in the order of the alphabet, so that numbers do not depend on anything else
    words = sorted([*known, UNKNOWN], key=lambda w: (-known.get(w, rare), w))
    number = {word: i for i, word in enumerate(words)}
    ends = torch.tensor([0, *accumulate(map(len, train))])
    return Text(tuple(words), _numbers(train, number), ends, _numbers(test, number), source)


def read(name: str) -> tuple[Sentences, Sentences, str]:
    """Sentences to train on, held-out ones, and where they came from."""
    if name not in NAMES:
        raise DataError(f"there is no text {name!r}; there are {', '.join(NAMES)}.")
    if name == "gensim":
        path = _in_gensim("head500.noblanks.cor")
        return *_split(
            tokens(path, whole=False)
        ), f"gensim's head500, a part of Lee's news, from {path}"
    if name == "shakespeare":
        path = find("tiny_shakespeare.txt")
        return *_split(tokens(path, whole=False)), f"Shakespeare (tiny) from {path}"
    # the training part is not on every machine: then the validation part, of the test part's size, stands in
    path = find("wikitext-2/train.txt", "wikitext-2/valid.txt")
    test = tokens(path.with_name("test.txt"), whole=True)
    return tokens(path, whole=True), test, f"WikiText-2, trained on {path}"


def _numbers(sentences: Iterable[Sequence[str]], number: dict[str, int]) -> Tensor:
    unknown = number[UNKNOWN]
    return torch.tensor([number.get(word, unknown) for s in sentences for word in s])


def _split(sentences: Sentences) -> tuple[Sentences, Sentences]:
    """The last tenth is the test set."""
    cut = len(sentences) - len(sentences) // 10
    return sentences[:cut], sentences[cut:]


def tokens(path: Path, *, whole: bool) -> Sentences:
    """Lines as lists of words; `whole` where words are separated by spaces already."""
    try:
        lines = path.read_text(encoding="utf-8").lower().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read {path} as text: {error}. Copy it anew.") from None
    sentences = [line.split() if whole else _TOKEN.findall(line) for line in lines]
    found = [s for s in sentences if s]
    if not found:
        raise DataError(f"{path} holds no words. Copy it anew.")
    return found


def find(*files: str) -> Path:
    """The first of these files in the folder `text` of a place where data may be."""
    for file in files:
        folder = places.find("text", file)
        if folder is not None:
            return folder / file
    raise DataError(
        f"{' or '.join(files)} is not here. Put it into FOLDER/text and set ARGRAD_DATA=FOLDER, or take text that "
        "needs no file: generated."
    )


def _in_gensim(file: str) -> Path:
    """A test file of the gensim package, which is not imported for it."""
    spec = importlib.util.find_spec("gensim")
    if spec is None or spec.origin is None:
        raise DataError("this text comes with gensim, which is not installed. Run: pip install gensim")
    path = Path(spec.origin).parent / "test" / "test_data" / file
    if not path.is_file():
        raise DataError(f"{path} is not there; this gensim came without its test data.")
    return path
