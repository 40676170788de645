r"""SimCSE with a token gate: a proxy learns through Gumbel-softmax which tokens the encoder may attend to.

$$ L = \mathrm{InfoNCE}(e(x, g), e(x', g')) + \lambda \max(0, \overline{p} - b), \qquad
   g \sim \mathrm{Concrete}(p, \tau),\quad p = \mathrm{proxy}(x) $$

Published without the second term, the gate keeps every token. With it, tokens go and similarities get better.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from argrad._errors import InputError
from argrad.recipes import simcse_page as page
from argrad.recipes.bench import Cell, Claim, Recipe, Run, Summary, option
from argrad.recipes.simcse_page import UNTRAINED, published

REGIMES = ("unsup", "sup")


@dataclass(frozen=True, kw_only=True)
class Config:
    """What can be set."""

    regimes: tuple[Literal["untrained", "unsup", "sup"], ...] = option(
        ("untrained", *REGIMES),
        "no training; dropout views of wikitext; premises of SNLI",
        selects=True,
    )
    columns: tuple[str, ...] = option(
        (), "only these ways of treating tokens, where there is training", selects=True
    )
    models: tuple[str, ...] = option(
        ("minilm",), "backbones: minilm, tiny, or folders and names of transformers", selects=True
    )
    layers: int | None = option(4, "of the backbone, from the first; none for all", at_least=1)
    unsup_file: str = option("", "sentences to train on; wikitext-2 if empty")
    sup_file: str = option("", "triples to train on; SNLI if empty")
    sts: str = option("", "generated, or the STS sets of the data folder if empty")
    longest: int = option(24, "words of a wikitext sentence, at most", at_least=1)
    steps: int = option(25, "training steps a cell, at most", at_least=1)
    epochs: float = option(1.0, "times that every example is seen, at most", above=0)
    batch: int | None = option(32, "examples a step; none for the published size", at_least=2)
    chunk: int = option(0, "examples that are held at a time (gradient cache); 0 for all", at_least=0)
    rate: float | None = option(None, "learning rate; none for the published one", above=0)
    gate_rate: float | None = option(
        2e-4, "learning rate of the gate with a budget; none for that of the rest", above=0
    )
    decay: float = option(0.01, "weight decay", at_least=0)
    warmup: float = option(
        0.06, "share of the steps before the full rate; then it falls to 0", at_least=0
    )
    temperature: float = option(0.05, "of the cosines", above=0)
    keep_bias: float = option(2.0, "log-odds of keeping a token before training")
    budget: float = option(
        0.7, "share of tokens above which keeping costs; random drop keeps as many", above=0
    )
    weight: float = option(2.0, "of that cost", above=0)
    max_length: int = option(32, "tokens of a sentence, at most; longer ones are cut", at_least=4)
    train_length: int = option(20, "the same in training", at_least=4)
    head: Literal["none", "mlp"] = option("none", "after pooling")
    select_on: Literal["last", "stsb-dev", "stsb-train+dev"] = option(
        "last", "which checkpoint is evaluated"
    )
    evaluations: int = option(1, "times that a checkpoint is offered", at_least=1)
    tasks: Literal["all", "stsb"] = option(
        "all", "score on seven tasks, or on STS-B dev and test alone", selects=True
    )


_PROXY = {"bert": "distilbert-base-uncased", "roberta": "distilroberta-base"}  # share the tokenizer


def cells(config: Config) -> list[Cell]:
    """Every backbone, regime and way; without training only the ways that need none."""
    if wrong := [c for c in config.columns if c not in _TRAINED]:
        raise InputError(f"there is no column {wrong[0]!r}; there are {', '.join(_TRAINED)}.")
    return [
        _cell(regime, model, column, config.tasks)
        for model in config.models
        for regime in config.regimes
        for column in _COLUMNS[regime]
        if regime == UNTRAINED or not config.columns or column in config.columns
    ]


_TRAINED = (
    "plain",
    "gate as published",
    "gate + budget",
    "random drop",
    "stop-word rule",
    "learned pooling",
)
_COLUMNS = {
    UNTRAINED: ("plain", "random drop", "stop-word rule"),
    "unsup": _TRAINED,
    "sup": _TRAINED,
}


def _cell(regime: str, model: str, column: str, tasks: str) -> Cell:
    family = next((f for f in ("roberta", "bert") if model.startswith(f)), "")
    row = f"{regime}-{family}" if family else regime
    numbers = published(row, column)
    settings = {"model": model, "regime": regime, "proxy": _PROXY.get(family), "tasks": tasks}
    stsb_test = None if numbers is None else numbers[10]
    return Cell(row, column, stsb_test, settings)


def train(config: Config, cell: Cell, run: Run) -> dict[str, float]:
    """Train one encoder, then score it on all tasks."""
    # loads transformers, which the list and the help do without
    from argrad.recipes import simcse_train

    return simcse_train.train(config, cell, run)


def claims(summary: Summary) -> list[Claim]:
    """What the document found, and what a budget changes."""
    return [c for row in summary.rows if row != UNTRAINED for c in _claims(summary, row)]


def _claims(summary: Summary, row: str) -> list[Claim]:
    plain, gate, budget = (
        summary.find(row, c) for c in ("plain", "gate as published", "gate + budget")
    )
    dev, test, found = "stsbenchmark_dev", "stsbenchmark_test", []
    if plain and gate:
        kept, away = gate.mean("kept"), abs(gate.mean(dev) - plain.mean(dev))
        text = f"{row}: the gate as published keeps almost every token and is as good as none"
        found.append(
            Claim(text, kept > 0.95 and away < 1.5, f"keeps {kept:.3f}; {away:.2f} apart on STS-B dev")
        )
    if plain and budget:
        for name, key in (("dev", dev), ("test", test)):
            a, b = budget.mean(key), plain.mean(key)
            found.append(
                Claim(
                    f"{row}: with a budget it beats none on STS-B {name}", a > b, f"{a:.2f} and {b:.2f}"
                )
            )
    return found


RECIPE = Recipe(
    name="simcse",
    title="Sentence embeddings with a learnt token gate",
    about=(
        "SimCSE training, unsupervised (two dropout views of a sentence) and supervised (SNLI triples), of an encoder "
        "whose attention to each token is multiplied by a gate that a one-layer proxy draws by Gumbel-softmax; at "
        "test a token is kept if its probability is at least 1/2. At CPU scale the start is the first four layers of "
        "MiniLM, which behave like an untuned language model; wikitext-2 and SNLI's dev and test parts are what it is "
        "trained on, and the last checkpoint is scored. The budget adds 2 max(0, kept - 0.7) to the loss, and its "
        "gate learns faster than the rest; the gate as published learns at the common rate. The table shows Spearman "
        "x 100 on STS-B test; the report has the document's twelve columns, the share of tokens kept, and scores "
        "without the pairs that are in STS-B train or dev too. The published numbers (--full) are those of BERT and "
        "RoBERTa."
    ),
    source="Gumbel-Softmax + Sentence Embedding (2022), all results",
    metric="stsbenchmark_test",
    unit="Spearman x 100 on STS-B test",
    better="higher",
    digits=2,
    config=Config(),
    smoke=Config(
        regimes=REGIMES,
        columns=("plain", "gate + budget", "learned pooling"),
        models=("tiny",),
        layers=None,
        unsup_file="generated",
        sup_file="generated",
        sts="generated",
        steps=8,
        batch=16,
        rate=1e-3,
    ),
    full=Config(
        regimes=REGIMES,
        columns=("plain", "gate as published", "gate + budget"),
        models=("bert-base-uncased", "roberta-base"),
        layers=None,
        unsup_file="wiki1m_for_simcse.txt",
        sup_file="nli_for_simcse.csv",
        steps=1_000_000,
        epochs=3.0,
        batch=None,
        chunk=128,
        gate_rate=None,
        decay=0.1,
        train_length=32,
        head="mlp",
        select_on="stsb-train+dev",
        evaluations=24,
    ),
    cells=cells,
    train=train,
    bands={
        "smoke": {("*", "*"): (0.0, 100.0)},
        "full": {("*", "plain"): (70.0, 90.0)},
    },
    claims=claims,
    figures=page.figures,
    needs={"transformers": "transformers (argrad[hf])"},
)
