r"""How many tokens a sentence needs: similarity against the share kept, for every way of training a gate.

$$ L = \mathbb{E}_{g} [1 - \cos(e(x, g), e(x, 1))] + w \max(0, \overline{p} - b) $$

The encoder is frozen; only the gate learns, from the embedding of the whole sentence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from argrad._errors import InputError
from argrad.recipes.bench import Cell, Claim, Recipe, Run, Summary, option
from argrad.recipes.charts import Series, legend, line_chart
from argrad.recipes.report import section

GATES = (
    *("soft Gumbel-softmax", "straight-through Gumbel", "straight-through", "ReinMax"),
    *("leave-one-out", "hard concrete", "top-k"),
)
RULES = ("random drop", "stop-word rule")
_SLACK = 0.06  # by which a share kept may be above its budget


@dataclass(frozen=True, kw_only=True)
class Config:
    """What can be set."""

    budgets: tuple[float, ...] = option(
        (0.3, 0.5, 0.7, 0.9), "shares of tokens to keep", selects=True, above=0
    )
    columns: tuple[str, ...] = option((), "only these gates", selects=True)
    model: str = option("minilm", "encoder: minilm, tiny, or a folder or name of transformers")
    file: str = option("", "sentences to train on; SNLI if empty")
    sts: str = option("", "generated, or the STS sets of the data folder if empty")
    steps: int = option(60, "training steps a cell", at_least=1)
    batch: int = option(32, "sentences a step", at_least=1)
    rate: float = option(2e-4, "learning rate of the gate, falling linearly to 0", above=0)
    weight: float = option(2.0, "of the budget", above=0)
    keep_bias: float = option(1.0, "log-odds of keeping a token before training")
    max_length: int = option(32, "tokens of a sentence, at most; longer ones are cut", at_least=4)


def cells(config: Config) -> list[Cell]:
    """Every share and gate; the stop-word rule keeps what it keeps."""
    known = (*GATES, *RULES)
    if wrong := [c for c in config.columns if c not in known]:
        raise InputError(f"there is no column {wrong[0]!r}; there are {', '.join(known)}.")
    chosen = [c for c in known if not config.columns or c in config.columns]
    return [
        Cell(f"keep {budget:g}", column, settings={"keep": budget})
        for budget in config.budgets
        for column in chosen
        if column != "stop-word rule" or budget == config.budgets[0]
    ]


def train(config: Config, cell: Cell, run: Run) -> dict[str, float]:
    """Train one gate; score the encoder behind it."""
    # loads transformers, which the list and the help do without
    from argrad.recipes import simcse_gates_train

    return simcse_gates_train.train(config, cell, run)


def claims(summary: Summary) -> list[Claim]:
    """A learnt choice of as many tokens is better than a random one; a gate that spends more does not count."""
    found = []
    for row in summary.rows:
        learnt = {
            c.cell.column: c.mean()
            for c in summary.cells
            if c.cell.row == row
            and c.cell.column in GATES
            and c.mean("kept") < c.cell.settings["keep"] + _SLACK
        }
        chance = summary.find(row, "random drop")
        if learnt and chance is not None:
            best = max(learnt, key=lambda name: learnt[name])
            text = (
                f"{row}: the best learnt gate within {_SLACK} of its budget is better than random drop"
            )
            detail = f"{best} {learnt[best]:.2f} and {chance.mean():.2f}"
            found.append(Claim(text, learnt[best] > chance.mean(), detail))
    return found


def figures(summary: Summary) -> Sequence[str]:
    """STS-B test against the share that was kept, a line a gate."""
    names = summary.columns
    lines = []
    for i, name in enumerate(names):
        points = sorted((c.mean("kept"), c.mean()) for c in summary.cells if c.cell.column == name)
        lines.append(Series(name, [x for x, _ in points], [y for _, y in points], i))
    text = "Share of the tokens of STS-B's test sentences that the gate kept, and Spearman x 100 there."
    chart = line_chart(lines, title="STS-B test", x_label="share of tokens kept")
    return [section("Similarity against tokens kept", text, legend(names), chart)]


RECIPE = Recipe(
    name="simcse-gates",
    title="STS-B against the share of tokens kept, every gate estimator",
    about=(
        "The packaged MiniLM is frozen; a one-layer proxy learns which tokens to delete (mode logit, the exact "
        "relaxation of deletion) so that the embedding stays that of the whole sentence, under a budget of kept "
        "tokens. A column is a way of getting the gradient through the choice. The table shows Spearman x 100 on "
        "STS-B test with hard gates; the figure puts it over the share of tokens that was really kept."
    ),
    source="no published table; the second figure of the recipe simcse",
    metric="stsbenchmark_test",
    unit="Spearman x 100 on STS-B test",
    better="higher",
    digits=2,
    config=Config(),
    smoke=Config(
        budgets=(0.5,),
        columns=("soft Gumbel-softmax", "leave-one-out", "top-k", "random drop"),
        model="tiny",
        file="generated",
        sts="generated",
        steps=5,
        batch=8,
        rate=1e-3,
    ),
    full=Config(budgets=(0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9), steps=1000, batch=64),
    cells=cells,
    train=train,
    bands={"smoke": {("*", "*"): (-100.0, 100.0)}},
    claims=claims,
    figures=figures,
    needs={"transformers": "transformers (argrad[hf])"},
)
