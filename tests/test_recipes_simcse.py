"""The recipes `simcse` and `simcse-gates`: presets, cells, a smoke run, and the published table."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from argrad._errors import InputError
from argrad.recipes import find, simcse, simcse_gates
from argrad.recipes import simcse_model as parts
from argrad.recipes import simcse_page as page
from argrad.recipes import simcse_train as training
from argrad.recipes.bench.reproduce import reproduce
from argrad.recipes.bench.run import Run
from argrad.recipes.data import wheels

CONFIG = simcse.RECIPE.smoke


def test_the_published_table_is_consistent():
    assert len(page.PUBLISHED) == 8
    for row, column in page.PUBLISHED:
        numbers = page.published(row, column)
        assert numbers is not None
        table = dict(zip(page.COLUMNS, numbers, strict=True))
        years = [table[f"sts{y}"] for y in range(12, 17)]
        for average, stsb in (("avg_sts", "stsbenchmark"), ("avg_test", "stsbenchmark_test")):
            mean = (sum(years) + table[stsb] + table["sickrelatedness"]) / 7
            assert mean == pytest.approx(table[average], abs=0.011)  # each is rounded to two digits
        assert table["avg_train_and_dev"] == table["stsbenchmark_train_and_dev"]
    assert page.published("unsup", "plain") is None


def test_cells_of_the_presets():
    default = simcse.cells(simcse.RECIPE.config)
    assert len(default) == 3 + 6 + 6 and {c.row for c in default} == {"untrained", "unsup", "sup"}
    assert all(c.published is None for c in default)
    full = simcse.cells(simcse.RECIPE.full)
    assert {c.row for c in full} == {"unsup-bert", "unsup-roberta", "sup-bert", "sup-roberta"}
    assert sum(c.published is not None for c in full) == 8
    assert {c.settings["proxy"] for c in full} == {"distilbert-base-uncased", "distilroberta-base"}
    with pytest.raises(
        InputError, match="there is no column 'magic'; there are plain, gate as published"
    ):
        simcse.cells(dataclasses.replace(CONFIG, columns=("magic",)))
    with pytest.raises(InputError, match="there is no column 'magic'; there are soft Gumbel-softmax"):
        simcse_gates.cells(simcse_gates.Config(columns=("magic",)))


def cell(column: str, regime: str = "unsup"):
    config = dataclasses.replace(CONFIG, columns=(), regimes=(regime,))
    return next(c for c in simcse.cells(config) if c.column == column)


@pytest.mark.parametrize("column", parts.WAYS)
def test_every_way_treats_tokens_as_it_says(column):
    torch.manual_seed(0)
    model = training.made(CONFIG, cell(column))
    texts = ["the man eats a bread in the street", "a dog draws the car near the sea ."]
    counted = model.encode_counted(texts)
    share = (counted.kept.sum() / counted.tokens.sum()).item()
    if column in (parts.PLAIN, parts.LEARNED):
        assert model.gate is None and share == 1
    elif column == parts.STOP:
        assert share < 0.6 and "the" not in str(model.explain(texts[:1])).replace("(-the-)", "")
    elif column == parts.RANDOM:
        assert 0.2 < share < 0.95
    else:
        assert model.gate is not None and model.gate.tau == 1.0
        assert share > 0.9  # a keep-bias of 2


def test_the_best_checkpoint_is_scored(tmp_path, monkeypatch):
    scores = iter([3.0, 9.0, 5.0])
    seen = []

    def selected(config, model):
        seen.append({k: v.clone() for k, v in model.state_dict().items()})
        return next(scores)

    monkeypatch.setattr(training, "_selected", selected)
    config = dataclasses.replace(CONFIG, steps=6, select_on="stsb-dev", evaluations=3)
    model = training.made(config, cell("gate + budget"))
    training.fit(config, cell("gate + budget"), model, Run(tmp_path, 0))
    assert len(seen) == 3
    assert all(torch.equal(v, seen[1][k]) for k, v in model.state_dict().items())


def test_chunks_of_a_batch_are_trained_as_one(tmp_path):
    def weights(chunk: int) -> dict[str, torch.Tensor]:
        torch.manual_seed(0)
        config = dataclasses.replace(CONFIG, steps=1, chunk=chunk)
        model = training.made(config, cell("plain", "sup"))
        for module in model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0  # a chunk drops out other units than the whole
        (folder := tmp_path / str(chunk)).mkdir()
        training.fit(config, cell("plain", "sup"), model, Run(folder, 0))
        return model.state_dict()

    whole, chunked = weights(0), weights(12)
    for name, value in whole.items():
        # Adam's first step is the sign of the gradient times 1e-3, whatever its size
        assert (value - chunked[name]).abs().mean() < 2e-5


@pytest.mark.parametrize("name", ["simcse", "simcse-gates"])
def test_smoke(name, tmp_path):
    recipe = find(name)
    config = recipe.smoke
    if name == "simcse":  # less of it: the rest is the same
        config = dataclasses.replace(
            config, regimes=("unsup",), columns=("plain", "gate + budget"), steps=3
        )
    summary = reproduce(recipe, config, preset="smoke", out=tmp_path, quiet=True)
    assert summary.passed and all(len(c.metrics["kept"]) == 1 for c in summary.cells)
    report = (tmp_path / name / "report.html").read_text(encoding="utf-8")
    assert ("Which tokens go" if name == "simcse" else "share of tokens kept") in report
    assert not list((tmp_path / name).rglob("train.pt"))


def test_claims_of_a_run_that_bears_them_out(tmp_path):
    recipe = simcse.RECIPE
    config = dataclasses.replace(
        CONFIG, regimes=("unsup",), columns=("plain", "gate + budget"), steps=1
    )
    summary = reproduce(recipe, config, preset="smoke", out=tmp_path, quiet=True)
    plain, budget = (summary["unsup", c] for c in ("plain", "gate + budget"))
    for metric in ("stsbenchmark_dev", "stsbenchmark_test"):
        plain.metrics[metric], budget.metrics[metric] = [60.0], [70.0]
    found = simcse.claims(summary)
    assert [c.holds for c in found] == [True, True] and "70.00 and 60.00" in found[0].detail
    budget.metrics["stsbenchmark_test"] = [59.0]
    assert [c.holds for c in simcse.claims(summary)] == [True, False]


@pytest.mark.slow
def test_the_packaged_model_scores_as_published():
    """About ten minutes: 42,000 sentences through six layers."""
    from functools import partial

    from argrad.integrations.sentences.encoder import GatedEncoder
    from argrad.integrations.sentences.evaluate import evaluate

    try:
        sets, folder = parts.sets(""), wheels.minilm()
    except InputError as error:
        pytest.skip(str(error))
    encoder = GatedEncoder.build(folder, max_length=256)
    scores = evaluate(partial(encoder.encode_counted, truncate=True), sets, batch_size=2048).all
    published = {"sts12": 72.4, "sts13": 80.6, "sts14": 75.6, "sts15": 85.4, "sts16": 79.0}
    published |= {"stsbenchmark_test": 82.0, "sickrelatedness": 77.6}
    for column, value in published.items():
        assert scores[column] == pytest.approx(value, abs=0.2), column
