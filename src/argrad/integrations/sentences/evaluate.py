r"""How well cosines of sentence embeddings rank pairs: Spearman's correlation on seven tasks, in percent.

$$ \rho = 100 \cdot \mathrm{corr}\bigl(\mathrm{rank}(\cos(e(a_i), e(b_i))),\ \mathrm{rank}(y_i)\bigr) $$
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from argrad._errors import InputError
from argrad.integrations.sentences.encoder import Counted
from argrad.integrations.sentences.sts import Pairs, join, sentences

Selection = Literal["stsb-dev", "stsb-train+dev"]
_SELECTED = {"stsb-dev": "stsbenchmark_dev", "stsb-train+dev": "stsbenchmark_train_and_dev"}
_YEARS = ("sts12", "sts13", "sts14", "sts15", "sts16")
_STSB = ("STSB-train", "STSB-dev", "STSB-test")
_MEMBERS = {
    "sickrelatedness": ("SICK-train", "SICK-dev", "SICK-test"),
    **{year: (year.upper(),) for year in _YEARS},
    "stsbenchmark": _STSB,
    "stsbenchmark_test": _STSB[2:],
    "stsbenchmark_train_and_dev": _STSB[:2],
    "stsbenchmark_dev": _STSB[1:2],
    "sickrelatedness_test": ("SICK-test",),
}  # column -> sets
_AVERAGES = {
    "avg_sts": (*_YEARS, "stsbenchmark", "sickrelatedness"),
    "avg_test": (*_YEARS, "stsbenchmark_test", "sickrelatedness"),
    "avg_train_and_dev": ("stsbenchmark_train_and_dev",),
}
COLUMNS = (*_AVERAGES, *list(_MEMBERS)[:9])  # the twelve of the published table, in its order


Encode = Callable[[list[str]], Any]  # sentences -> (n, d), a tensor, an array or `Counted`


@dataclass(frozen=True)
class Scores:
    """Spearman's correlation in percent, by column; a column is there if its sets were given.

    Attributes:
        all: over all pairs of a task at once, the number that papers report.
        mean: mean over the parts (sources) of a task.
        wmean: the same, weighted by their sizes.
        dedup: as `all`, without the pairs that are in STS-B train or dev as well.
        select_on: which column chooses a checkpoint.
        kept: tokens that the encoder kept, as a share; 1 if it does not say.
    """

    all: dict[str, float]
    mean: dict[str, float] = field(repr=False)
    wmean: dict[str, float] = field(repr=False)
    dedup: dict[str, float] = field(repr=False)
    select_on: Selection = "stsb-dev"
    kept: float = 1.0

    @property
    def selected(self) -> float:
        """The number that chooses a checkpoint."""
        return self.all[_SELECTED[self.select_on]]

    @property
    def sparsity(self) -> float:
        """The share of tokens that were removed."""
        return 1.0 - self.kept

    def table(self) -> dict[str, float]:
        """One flat row: the columns, those without duplicates as `..._dedup`, `kept` and `sparsity`."""
        dedup = {f"{name}_dedup": value for name, value in self.dedup.items()}
        return {**self.all, **dedup, "kept": self.kept, "sparsity": self.sparsity}


def evaluate(
    encode: Encode,
    sets: Mapping[str, Pairs],
    *,
    select_on: Selection = "stsb-dev",
    batch_size: int = 128,
) -> Scores:
    r"""Score an encoder on the sets that are given; each sentence is encoded once.

    The columns are those of the published table: `avg_sts` (seven tasks, STS-B whole), `avg_test` (its test part),
    `avg_train_and_dev`, `sickrelatedness` (all parts), `sts12` to `sts16`, `stsbenchmark`, `stsbenchmark_test`,
    `stsbenchmark_train_and_dev`; and `stsbenchmark_dev` and `sickrelatedness_test`.

    About half of the pairs of STS12 to STS15 are in STS-B train or dev too. Whoever selects on these selects on the
    test: hence `select_on="stsb-dev"`, and `Scores.dedup`.

    Args:
        encode: a list of sentences to `(n, d)` embeddings: a tensor, an array, or `Counted`, as
            `GatedEncoder.encode_counted` gives.
        sets: what `load_sts` returns, or a part of it.
        select_on: what `Scores.selected` is.
        batch_size: sentences in a call of `encode`, of similar lengths.

    Examples:
        >>> import torch
        >>> from argrad.integrations.sentences.sts import Pairs
        >>> pairs = Pairs(("a b", "c d", "e"), ("a", "e", "c"), (5.0, 1.0, 0.5), ("x",) * 3)
        >>> def encode(texts): return torch.tensor([[float(t.count(c)) for c in "abcde"] for t in texts])
        >>> evaluate(encode, {"STSB-dev": pairs}).all
        {'stsbenchmark_dev': 86.60...}
    """
    if select_on not in _SELECTED:
        raise InputError(f"`select_on` must be one of {', '.join(_SELECTED)}; got {select_on!r}.")
    texts = sentences(sets)
    embeddings, kept = _embed(encode, texts, batch_size)
    place = {text: i for i, text in enumerate(texts)}

    def cosines(pairs: Pairs) -> np.ndarray:
        a, b = (embeddings[[place[s] for s in side]] for side in (pairs.first, pairs.second))
        return (a * b).sum(-1).numpy()

    tasks = {
        c: join(*(sets[m] for m in members))
        for c, members in _MEMBERS.items()
        if all(m in sets for m in members)
    }
    near = {c: cosines(pairs) for c, pairs in tasks.items()}
    every = {c: spearman(near[c], pairs.score) for c, pairs in tasks.items()}
    parts = {c: _by_part(near[c], pairs) for c, pairs in tasks.items()}
    return Scores(
        _averaged(every),
        _averaged({c: float(np.mean(values)) for c, (values, _) in parts.items()}),
        _averaged({c: float(np.average(values, weights=n)) for c, (values, n) in parts.items()}),
        _deduplicated(sets, tasks, cosines),
        select_on,
        kept,
    )


def spearman(x: Sequence[float] | np.ndarray, y: Sequence[float] | np.ndarray) -> float:
    """Spearman's rank correlation in percent, ties averaged; NaN if one side is constant."""
    from scipy.stats import rankdata

    a, b = (rankdata(np.asarray(v, dtype=np.float64)) for v in (x, y))
    a, b = a - a.mean(), b - b.mean()
    size = np.sqrt((a @ a) * (b @ b))
    return float(100 * (a @ b) / size) if size > 0 else float("nan")


def _embed(encode: Encode, texts: list[str], batch_size: int) -> tuple[Tensor, float]:
    """Embeddings of length 1, and the share of tokens kept."""
    found, kept, tokens = [], 0, 0
    for start in range(0, len(texts), batch_size):
        batch = texts[start : start + batch_size]
        said = encode(batch)
        if isinstance(said, Counted):
            kept, tokens = kept + int(said.kept.sum()), tokens + int(said.tokens.sum())
            said = said.embedding
        found.append(_checked(said, len(batch)))
    return normalize(torch.cat(found), dim=-1), kept / tokens if tokens else 1.0


def _checked(said: Any, rows: int) -> Tensor:
    x = torch.as_tensor(said).detach().cpu().float()
    if x.dim() != 2 or len(x) != rows:
        raise InputError(
            f"`encode` must return one row for each of {rows} sentences; got shape {tuple(x.shape)}."
        )
    if not x.isfinite().all():
        raise InputError(
            f"`encode` returned NaN or infinity in {int((~x.isfinite()).any(-1).sum())} of {rows} rows, of which no "
            "correlation means anything. Find out where they come from (a sentence without tokens?)."
        )
    return x


def _by_part(near: np.ndarray, pairs: Pairs) -> tuple[list[float], list[int]]:
    """The correlation within each source, and its size."""
    source, score = np.array(pairs.part), np.array(pairs.score)
    chosen = [source == name for name in dict.fromkeys(pairs.part)]
    return [spearman(near[c], score[c]) for c in chosen], [int(c.sum()) for c in chosen]


def _averaged(columns: dict[str, float]) -> dict[str, float]:
    """With the averages whose columns are there, in front."""
    known = {
        name: float(np.mean([columns[c] for c in members]))
        for name, members in _AVERAGES.items()
        if all(c in columns for c in members)
    }
    return {**known, **columns}


def _deduplicated(
    sets: Mapping[str, Pairs],
    tasks: Mapping[str, Pairs],
    cosines: Callable[[Pairs], np.ndarray],
) -> dict[str, float]:
    """Test columns without what is in STS-B train or dev; nothing if these were not given."""
    if not all(name in sets for name in _STSB[:2]):
        return {}
    seen = join(*(sets[name] for name in _STSB[:2]))
    clean = {c: tasks[c].without(seen) for c in _AVERAGES["avg_test"] if c in tasks}
    return _averaged({c: spearman(cosines(pairs), pairs.score) for c, pairs in clean.items()})
