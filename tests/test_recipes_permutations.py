"""The recipes sorting, jigsaw and connectome: their parts against oracles, and their smoke runs."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
import torch
from scipy.stats import kendalltau

from argrad.cli import main
from argrad.recipes import jigsaw_model, sorting
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


# ---- jigsaw --------------------------------------------------------------------------------------------


def test_cutting_and_joining():
    image = torch.arange(36.0).reshape(1, 6, 6)
    pieces = jigsaw_model.cut(image, 3)
    torch.testing.assert_close(pieces[0, 5], image[0, 2:4, 4:6])  # second row, third column
    torch.testing.assert_close(jigsaw_model.join(pieces), image)
    torch.testing.assert_close(jigsaw_model.join(jigsaw_model.cut(image, 5)), image[:, :5, :5])
    torch.testing.assert_close(jigsaw_model.join(jigsaw_model.cut(image, 4)), image[:, 1:5, 1:5])


def test_the_right_permutation_solves_a_scrambled_puzzle():
    pieces = torch.rand(4, 9, 2, 2, generator=G().manual_seed(0))
    mixed, order = jigsaw_model.scramble(pieces, G().manual_seed(1))
    assert (order.sort(-1).values == torch.arange(9)).all() and (order != torch.arange(9)).any()
    p = torch.eye(9)[order].mT  # piece j belongs to place order[j]
    solved = jigsaw_model.arrange(p, mixed)
    assert (solved == pieces).all()
    found = jigsaw_model.measures(solved, pieces, order.gather(-1, p.argmax(-1)))
    assert all((value == (name == "Kendall tau")).all() for name, value in found.items())


def test_a_network_does_not_care_in_which_order_the_pieces_come():
    torch.manual_seed(0)
    model = jigsaw_model.Solver(3, 4, 4, 8, 2)
    pieces = torch.rand(2, 9, 4, 4)
    mixed, order = jigsaw_model.scramble(pieces, G().manual_seed(1))
    expected = model(pieces).gather(-1, order[:, None].expand(-1, 9, -1))
    torch.testing.assert_close(model(mixed), expected, atol=1e-5, rtol=1e-4)  # float32 sums reordered


@pytest.mark.parametrize("n", [2, 5, 9])
def test_kendall_tau_is_that_of_scipy(n: int):
    orders = torch.rand(20, n, generator=G().manual_seed(0)).argsort(-1)
    expected = [kendalltau(order, range(n)).statistic for order in orders.tolist()]
    torch.testing.assert_close(jigsaw_model.kendall_tau(orders).double(), torch.tensor(expected))


def test_identical_pieces_are_numbered_in_their_favour():
    """Against all numberings: the best Kendall tau of those that show the same picture."""
    g = G().manual_seed(0)
    kinds = torch.randint(0, 3, (30, 6), generator=g)
    pieces = kinds[..., None, None].float().expand(-1, -1, 2, 2)
    placed = torch.rand(30, 6, generator=g).argsort(-1)
    ours = jigsaw_model.kendall_tau(jigsaw_model.relabelled(placed, pieces))
    every = torch.tensor(list(itertools.permutations(range(6))))
    for kind, order, found in zip(kinds, placed, ours, strict=True):
        alike = every[(kind[every] == kind[order]).all(-1)]
        assert found == jigsaw_model.kendall_tau(alike).max()


def test_two_blank_pieces_that_changed_places_are_not_wrong():
    pieces = torch.zeros(1, 4, 2, 2)
    pieces[0, 0, 0, 0], pieces[0, 3, 1, 1] = 1.0, 0.5
    for placed, wrong in (([0, 2, 1, 3], 0.0), ([3, 1, 2, 0], 0.5)):
        order = torch.tensor([placed])
        found = jigsaw_model.measures(pieces[:, placed], pieces, order)
        assert found["wrong"].item() == wrong and found["any wrong"].item() == (wrong > 0)
    # 1 and 0.5 each missing once and once too much, over 16 pixels
    assert found["l1"].item() == 3 / 16 and found["l2"].item() == 2.5 / 16
    assert found["Kendall tau"].item() == pytest.approx(
        1 - 2 * 5 / 6
    )  # of six pairs only the blanks are in order


def test_jigsaw_smoke(tmp_path: Path):
    results, page = smoke("jigsaw", tmp_path)
    assert len(results["cells"]) == 2 and results["passed"]
    assert set(results["cells"][0]["metrics"]) == {"any wrong", "wrong", "l1", "l2", "Kendall tau"}
    assert page.count("data:image/png") == 2 * 4 and "10 images: scrambled" in page
