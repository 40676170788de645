r"""A log-bilinear language model by noise-contrastive estimation (Mnih and Teh 2012), beside full softmax and others.

$$ h = \sum_i C_i\, r_{w_i}, \qquad s_w = u_w \cdot h + b_w, \qquad
   p(w \mid \text{context}) = e^{s_w} \text{ (NCE)} \quad \text{or} \quad \mathrm{softmax}(s)_w $$

Every column trains the same model with another loss of `argrad.losses`. The table shows normalised perplexity on
held-out text, so that no column profits from scores that do not sum to 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, linear

import argrad as ag
from argrad._errors import InputError
from argrad.losses._large_softmax import linear_log_partition, linear_log_prob
from argrad.recipes.bench import Cell, Claim, Recipe, Run, Summary, option
from argrad.recipes.data import text
from argrad.recipes.data.languages import trigram_language
from argrad.recipes.training import Decay, Shuffled


@dataclass(frozen=True, kw_only=True)
class Config:
    """What can be set."""

    rows: tuple[str, ...] = option(
        ("generated",), "texts: generated, shakespeare, wikitext-2, gensim", selects=True
    )
    columns: tuple[str, ...] = option((), "only these columns", selects=True)
    words: int = option(1_000_000, "words of generated text", at_least=10_000)
    vocabulary: int = option(5000, "different words of generated text", at_least=10)
    min_count: int = option(2, "rarer words of real text are one word, <unk>", at_least=1)
    context: int = option(2, "words before", at_least=1)
    d: int = option(64, "size of a word's vector", at_least=1)
    steps: int = option(3000, "training steps a cell", at_least=1)
    batch: int = option(500, "words a step", at_least=2)
    rate: float = option(3e-3, "of Adam, falling linearly to a tenth in the second half", above=0)


# ---- text ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Problem:
    """Contexts `(n, context)` and the words that follow them `(n,)`, to train and to test; counts of words."""

    train: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]
    counts: Tensor
    floor: float  # perplexity of the true law on the test set, where it is known


def problem(config: Config, row: str) -> Problem:
    """The text of a row."""
    if row == "generated":
        language = trigram_language(config.vocabulary)
        g = torch.Generator().manual_seed(0)
        texts, held_out = (language.sample(n, g) for n in (config.words, config.words // 10))
        floor = language.perplexity(held_out)
        size = config.vocabulary
    else:
        real = text.load(row, min_count=config.min_count)
        texts, held_out, size, floor = real.train[None], real.test[None], len(real.words), math.nan
    counts = torch.bincount(texts.reshape(-1), minlength=size)
    train, test = (_windows(part, config.context) for part in (texts, held_out))
    return Problem(train, test, counts, floor)


def _windows(texts: Tensor, context: int) -> tuple[Tensor, Tensor]:
    """Every word of texts `(texts, length)` that has enough words before it."""
    runs = texts.unfold(1, context + 1, 1).reshape(-1, context + 1)
    return runs[:, :-1].contiguous(), runs[:, -1].contiguous()


# ---- model --------------------------------------------------------------------------------------------


class FullSoftmax(nn.Module):
    """The plain cross-entropy over all words, its bias beginning at the log-frequencies as in the others."""

    def __init__(self, d: int, counts: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(len(counts), d).uniform_(-1, 1) / math.sqrt(d))
        self.bias = nn.Parameter((counts + 1.0).log() - (counts + 1.0).sum().log())

    def forward(self, hidden: Tensor, target: Tensor) -> Tensor:
        """The loss of each item."""
        return cross_entropy(linear(hidden, self.weight, self.bias), target, reduction="none")


Sampled = ag.NCE | ag.SampledSoftmax | ag.NegativeSampling
Head = FullSoftmax | ag.HierarchicalSoftmax | Sampled


def _nce(d: int, counts: Tensor, *, power: float = 1.0, zero: bool = False, **options: Any) -> Head:
    head = ag.NCE(d, ag.Unigram(counts + 1, power), **options)
    if zero and head.bias is not None:
        nn.init.zeros_(head.bias)
    return head


def _sampled(d: int, counts: Tensor, **options: Any) -> Head:
    return ag.SampledSoftmax(d, ag.Unigram(counts + 1, 1.0), **options)


def _negative(d: int, counts: Tensor, k: int) -> Head:
    head = ag.NegativeSampling(d, ag.Unigram(counts + 1, 1.0), k, bias=True)
    nn.init.normal_(head.weight, std=0.01)
    return head


COLUMNS: dict[str, Callable[[int, Tensor], Head]] = {
    "full softmax": FullSoftmax,
    "NCE 1": lambda d, c: _nce(d, c, k=1, shared=False),
    "NCE 5": lambda d, c: _nce(d, c, k=5, shared=False),
    "NCE 25": lambda d, c: _nce(d, c, k=25, shared=False),
    "NCE 25, uniform noise": lambda d, c: _nce(d, c, k=25, shared=False, power=0.0),
    "NCE 25, bias from 0": lambda d, c: _nce(d, c, k=25, shared=False, zero=True),
    "NCE 100 shared": lambda d, c: _nce(d, c, k=100),
    "NCE 1000 shared": lambda d, c: _nce(d, c, k=1000),
    "sampled softmax 100": lambda d, c: _sampled(d, c, k=100),
    "sampled softmax 1000": lambda d, c: _sampled(d, c, k=1000),
    "ranking NCE 100": lambda d, c: _sampled(d, c, k=100, mask_hits=False),
    "hierarchical softmax": lambda d, c: ag.HierarchicalSoftmax(d, c + 1),
    "negative sampling 25": lambda d, c: _negative(d, c, k=25),
}


class LogBilinear(nn.Module):
    """Vectors of context words, a diagonal matrix for each place, and a loss over the next word."""

    def __init__(self, config: Config, head: Head, words: int) -> None:
        super().__init__()
        self.vectors = nn.Embedding(words, config.d)
        self.places = nn.Parameter(torch.ones(config.context, config.d))
        nn.init.normal_(self.vectors.weight, std=0.1)
        self.head: Head = head

    def hidden(self, context: Tensor) -> Tensor:
        """The prediction `(batch, d)` from words `(batch, context)`."""
        return (self.vectors(context) * self.places).sum(-2)


def cells(config: Config) -> list[Cell]:
    """Every text with every loss."""
    for name in config.columns:
        if name not in COLUMNS:
            raise InputError(f"there is no column {name!r}; there are {', '.join(COLUMNS)}.")
    chosen = config.columns or tuple(COLUMNS)
    return [Cell(row, column) for row in config.rows for column in chosen]


def train(config: Config, cell: Cell, run: Run) -> dict[str, float]:
    """One loss on one text."""
    asked = problem(config, cell.row)
    model = LogBilinear(config, COLUMNS[cell.column](config.d, asked.counts), len(asked.counts))
    optimizer = torch.optim.Adam(model.parameters(), config.rate)
    decay = Decay(optimizer, config.steps)
    batches, noise = Shuffled(asked.train, config.batch, run.generator(1)), run.generator(2)
    draws = {"generator": noise} if isinstance(model.head, Sampled) else {}
    for step in run.steps(config.steps, model=model, optimizer=optimizer, batches=batches, noise=noise):
        context, target = batches.next()
        loss = model.head(model.hidden(context), target, **draws).mean()
        optimizer.zero_grad()
        loss.backward()
        decay.step(step)
        run.log(loss=loss)
    return evaluate(model, asked) | {
        "generator's perplexity": asked.floor,
        "milliseconds a step": 1000 * run.seconds / config.steps,
    }


# ---- perplexity ---------------------------------------------------------------------------------------


@torch.no_grad()
def evaluate(model: LogBilinear, asked: Problem) -> dict[str, float]:
    """Perplexity on the test set: normalised, and as the scores are; how far they are from summing to 1."""
    context, target = asked.test
    hidden, head = model.hidden(context), model.head
    if isinstance(head, ag.HierarchicalSoftmax):
        return {"perplexity": _perplexity(head.log_prob(hidden, target))}
    weight, bias = head.weight, head.bias
    found = {"perplexity": _perplexity(linear_log_prob(hidden, weight, bias, target))}
    log_z = linear_log_partition(hidden, weight, bias).double()
    found |= {"mean log Z": log_z.mean().item(), "deviation of log Z": log_z.std().item()}
    if isinstance(head, ag.NCE):
        found["perplexity, not normalised"] = _perplexity(head.log_prob(hidden, target))
    if isinstance(head, ag.NegativeSampling) and bias is not None:  # the scores as NCE reads them
        log_kq = head.noise.log_prob(torch.arange(head.num_classes)) + math.log(head.k)
        corrected = bias + log_kq.to(bias.dtype)
        found["perplexity, log kq added"] = _perplexity(
            linear_log_prob(hidden, weight, corrected, target)
        )
    return found


def _perplexity(log_prob: Tensor) -> float:
    return math.exp(-log_prob.double().mean().item())


# ---- what the paper says, as sentences ----------------------------------------------------------------


def claims(summary: Summary) -> Sequence[Claim]:
    """Of every text that has the columns."""
    return [claim for row in summary.rows for claim in _claims(summary, row)]


def _claims(summary: Summary, row: str) -> list[Claim]:
    cell = {c.cell.column: c for c in summary.cells if c.cell.row == row}
    ppl = {name: c.mean() for name, c in cell.items()}
    said: list[Claim] = []

    def say(sentence: str, holds: Callable[[], bool], *columns: str) -> None:
        if all(c in ppl for c in columns):
            detail = ", ".join(f"{c}: {ppl[c]:.1f}" for c in columns)
            said.append(Claim(f"{row}: {sentence}", holds(), detail))

    full, nce = "full softmax", "NCE 25"
    say(
        "NCE with 25 noise words is at most 5 % worse than full softmax",
        lambda: ppl[nce] < 1.05 * ppl[full],
        nce,
        full,
    )
    say(
        "more noise words are better",
        lambda: ppl["NCE 1"] > ppl["NCE 5"] > ppl[nce],
        "NCE 1",
        "NCE 5",
        nce,
    )
    uniform, zero, neg = "NCE 25, uniform noise", "NCE 25, bias from 0", "negative sampling 25"
    say("unigram noise is better than uniform noise", lambda: ppl[nce] < ppl[uniform], nce, uniform)
    say("a bias that begins at 0 is worse than log q", lambda: ppl[nce] < ppl[zero], nce, zero)
    say(
        "negative sampling is not a density: its softmax is 1.5 times as perplexed as NCE",
        lambda: ppl[neg] > 1.5 * ppl[nce],
        neg,
        nce,
    )
    if nce in cell:
        log_z, spread = cell[nce].mean("mean log Z"), cell[nce].mean("deviation of log Z")
        sentence = f"{row}: NCE normalises itself: log Z is within 0.3 of 0 on average"
        said.append(Claim(sentence, abs(log_z) < 0.3, f"{log_z:.2f}, deviation {spread:.2f}"))
    if neg in cell and nce in cell:
        corrected = cell[neg].mean("perplexity, log kq added")
        sentence = f"{row}: with log kq added, negative sampling's scores are NCE's, within 10 %"
        said.append(Claim(sentence, corrected < 1.1 * ppl[nce], f"{corrected:.1f} and {ppl[nce]:.1f}"))
    return said


RECIPE = Recipe(
    name="nce-lm",
    title="A log-bilinear language model: NCE, full softmax, and the other sampled losses",
    about=(
        "A log-bilinear model of two words of context, the same for every column but for its loss. The table shows "
        "perplexity on held-out text, normalised over all words. The generated language is one that the model can "
        "represent, and its own perplexity on the test set (a measure of every cell) is the floor. The paper trains on "
        "the Penn Treebank, which may not be passed on, and finds that NCE with 25 noise words is as good as maximum "
        "likelihood and an order of magnitude faster, that unigram noise is better than uniform noise, and that the "
        "normaliser may be fixed at 1; these sentences are checked below. Time is for a step, on one thread."
    ),
    source="Mnih and Teh 2012, Section 5",
    metric="perplexity",
    unit="test perplexity, normalised",
    config=Config(),
    smoke=Config(words=50_000, vocabulary=300, steps=300, d=16, batch=200, rate=1e-2),
    full=Config(
        rows=("generated", "shakespeare", "wikitext-2"), words=5_000_000, vocabulary=20_000, steps=20_000, d=100
    ),
    cells=cells,
    train=train,
    bands={
        "smoke": {
            ("generated", "negative sampling 25"): (150.0, 400.0),
            ("generated", "NCE 25, bias from 0"): (75.0, 130.0),
            ("generated", "*"): (54.0, 72.0),
        },
    },
    claims=claims,
)  # fmt: skip
