"""The recipes sorting, jigsaw and connectome: their parts against oracles, and their smoke runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from argrad.cli import main
from argrad.recipes import sorting
from argrad.recipes.bench.run import Run

G = torch.Generator


def smoke(name: str, folder: Path, *options: str) -> tuple[dict, str]:
    """The results and the page of a smoke run."""
    assert main(["reproduce", name, "--smoke", "--quiet", *options, "--out", str(folder)]) == 0
    page = (folder / name / "report.html").read_text("utf-8")
    return json.loads((folder / name / "results.json").read_text()), page


# ---- sorting -------------------------------------------------------------------------------------------


def right_sorter(n: int, column: str) -> sorting.Network:
    """By the rearrangement inequality scores of place times number (or the number itself) sort every list."""
    model = sorting.Network(n, 1, sorting.WAYS[column])
    first, last = model.layers[0], model.layers[2]
    with torch.no_grad():
        first.weight.fill_(1.0), first.bias.zero_(), last.bias.zero_()
        last.weight.copy_(torch.arange(1.0, len(last.weight) + 1)[:, None])
    return model


@pytest.mark.parametrize("column", sorting.WAYS)
def test_a_network_that_sorts_is_never_wrong_and_its_mirror_image_always(column: str, tmp_path: Path):
    config = sorting.Config(test_lists=20)
    model, way = right_sorter(6, column), sorting.WAYS[column]
    found = sorting.evaluate(config, model, way, 6, Run(tmp_path, 0))
    assert len(found) == 2 * len(sorting.INTERVALS) and set(found.values()) == {0.0}
    with torch.no_grad():
        model.layers[2].weight.neg_()
    found = sorting.evaluate(config, model, way, 6, Run(tmp_path, 0))
    assert found["any wrong"] == found["wrong on U(0, 10)"] == 1.0  # six places: none stays


@pytest.mark.parametrize("column", sorting.WAYS)
def test_a_cold_soft_order_is_the_hard_one(column: str):
    way, model = sorting.WAYS[column], right_sorter(4, column)
    x = torch.tensor([[0.9, 0.1, 0.5, 0.3]])
    # gaps of 0.2 times steps of 1 between places; noise stays of order 1, so the scores are scaled instead
    scores = 1e4 * model(x)
    soft = way.soft(scores, sorting.Config(tau=0.1, samples=1), G().manual_seed(0))
    torch.testing.assert_close(soft.reshape(1, 4, 4), way.hard(scores), atol=1e-5, rtol=0)
    torch.testing.assert_close(sorting.apply(way.hard(scores), x), x.sort(-1).values)


def test_sorting_smoke(tmp_path: Path):
    results, page = smoke("sorting", tmp_path)
    assert len(results["cells"]) == 5 and results["passed"]
    assert "any wrong on U(1000, 1001)" in results["cells"][0]["metrics"]
    assert "Other intervals" in page and "Longer lists" in page
