"""The recipes sorting, jigsaw and connectome: their parts against oracles, and their smoke runs."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from scipy.stats import kendalltau

from argrad.cli import main
from argrad.recipes import connectome_model, connectome_ways, jigsaw_model, sorting
from argrad.recipes.bench.run import Run
from argrad.recipes.data import elegans
from argrad.recipes.data.places import DataError
from smoke_run import smoke

G = torch.Generator


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


# ---- connectome ----------------------------------------------------------------------------------------


def small_worms(n: int = 6, *, steps: int = 40, known: float = 0.3, reach: int = 2, worms: int = 3):
    g = G().manual_seed(0)
    wires = connectome_model.generated_wiring(n, 3, g)
    weights = connectome_model.draw_weights(wires, 0.9, g)
    found = connectome_model.record(
        wires, weights, worms=worms, steps=steps, known=known, reach=reach, generator=g
    )
    return found, torch.nn.functional.one_hot(found.names, n).double()


def test_the_misfit_is_the_sum_over_time():
    weights = torch.randn(5, 5, generator=G().manual_seed(0), dtype=torch.float64)
    y = torch.randn(9, 1, 5, generator=G().manual_seed(1), dtype=torch.float64)  # any recording will do
    p = torch.rand(
        2, 1, 5, 5, generator=G().manual_seed(2), dtype=torch.float64
    )  # and any soft matching
    worms, _ = small_worms(5)
    before, after = y[:-1, 0].mT, y[1:, 0].mT
    given = {"s00": before @ before.mT, "s10": after @ before.mT, "power": after.square().sum()}
    worms = replace(worms, **{name: value[None] for name, value in given.items()})
    expected = 0.5 * (after - p @ weights @ p.mT @ before).square().sum((-2, -1))
    torch.testing.assert_close(connectome_model.misfit(p, weights, worms), expected)


def test_the_truth_explains_a_recording_up_to_its_noise():
    worms, true = small_worms(20, steps=2000)
    left = connectome_model.misfit(true, worms.weights, worms) / (2000 * 20)
    # half of the mean square of 40000 standard normals: deviation 0.0035
    torch.testing.assert_close(left, torch.full_like(left, 0.5), atol=6 * 0.0035, rtol=0)
    channels = true.argmax(-2)
    weights, _ = connectome_model.posterior_of_weights(channels, worms, 1.0)
    assert connectome_model.measures(true, weights, worms)["error of W"] < 0.1
    assert connectome_model.measures(true, weights, worms)["identified"] == 1
    wrong = connectome_model.misfit(true.roll(1, -1), worms.weights, worms) / (2000 * 20)
    assert (wrong > left + 0.05).all()


def test_the_weights_given_names_are_a_ridge_regression():
    worms, true = small_worms(6)
    ours, factor = connectome_model.posterior_of_weights(true.argmax(-2), worms, 2.0)
    s00, s10 = (
        sum(p.mT @ s @ p for p, s in zip(true, stats, strict=True)) for stats in (worms.s00, worms.s10)
    )
    for i, wires in enumerate(worms.adjacency):
        precision = s00[wires][:, wires] + 2.0 * torch.eye(int(wires.sum()))
        torch.testing.assert_close(ours[i, wires], torch.linalg.solve(precision, s10[i, wires]))
        assert (ours[i, ~wires] == 0).all()
        torch.testing.assert_close((factor[i] @ factor[i].mT)[wires][:, wires], precision)


def test_both_forms_of_the_likelihood_agree():
    worms, true = small_worms(6)
    p = true[:, torch.randperm(6, generator=G().manual_seed(3))]
    short = connectome_ways.log_likelihood(p.argmax(-2), worms.weights, worms)
    torch.testing.assert_close(
        short, 0.5 * worms.power - connectome_model.misfit(p, worms.weights, worms)
    )


def test_the_true_names_are_allowed_and_known_ones_are_alone():
    worms, true = small_worms(30, known=0.4, reach=4)
    assert (worms.mask | (true == 0)).all()
    assert (worms.known.sum(-1) == 12).all()
    assert (worms.mask[worms.known].sum(-1) == 1).all()
    given = true.bool() & worms.known[..., None]
    assert (worms.mask.sum(-2)[given.any(-2)] == 1).all()  # nobody else may have a name that is given
    most = worms.mask[~worms.known].sum(-1).max()
    assert 1 < most <= 2 * 4 + 1


def one_unknown_worm() -> tuple[connectome_model.Worms, torch.Tensor]:
    """Two worms whose names are all known, and a little of a third: its names are uncertain, W is not."""
    worms, true = small_worms(4, steps=40, known=0.0, reach=4)
    known = torch.tensor([[True], [True], [False]]).expand(3, 4)
    share = torch.tensor([1.0, 1.0, 0.005], dtype=torch.float64)[:, None, None]
    mask = torch.where(known[..., None], true.bool(), worms.mask)
    return replace(worms, known=known, mask=mask, s00=share * worms.s00, s10=share * worms.s10), true


def test_the_chain_samples_the_posterior_of_names():
    """Against all orders of four neurons, W integrated out."""
    worms, true = one_unknown_worm()
    every = torch.tensor(list(itertools.permutations(range(4))))  # channel of each neuron
    evidence = []
    for last in every:
        channels = torch.cat([true[:2].argmax(-2), last[None]])
        mean, factor = connectome_model.posterior_of_weights(channels, worms, 5.0)
        s10 = connectome_model.in_order(worms.s10, channels).sum(0) * worms.adjacency
        evidence.append(0.5 * (s10 * mean).sum() - factor.diagonal(dim1=-2, dim2=-1).log().sum())
    feasible = worms.mask[2, every, torch.arange(4)].all(-1)
    chance = torch.stack(evidence).masked_fill(~feasible, -torch.inf).softmax(0)
    exact = torch.einsum("k,kij->ij", chance, torch.eye(4, dtype=torch.float64)[every].mT)
    # an even law would be matched by any chain that mixes
    assert 4 < int(feasible.sum()) < 24 and 0.4 < exact.max() < 0.9
    g = G().manual_seed(5)
    chain = connectome_ways.Chain(worms, g)
    for _ in range(1000):
        chain.sweep(5.0, g)
        chain.count()
    assert (chain.channels[:2] == true[:2].argmax(-2)).all()
    # shares of 1000 draws that forget each other within ten: deviation below 0.05, and far less on average
    torch.testing.assert_close(chain.visits[2].double() / 1000, exact, atol=0.12, rtol=0)
    assert (chain.visits[2] / 1000 - exact).abs().mean() < 0.05


def test_the_wiring_of_the_worm():
    pytest.importorskip("cect")
    wires = elegans.elegans_wiring()
    assert wires.shape == (279, 279) and not wires.diagonal().any()
    # Varshney et al. 2011: 2194 chemical connections and 514 gap junctions, some pairs having both
    assert 2194 < int(wires.sum()) < 2194 + 2 * 517
    near = (torch.arange(279)[:, None] - torch.arange(279)).abs() < 70
    assert wires[near].float().mean() > 2 * wires[~near].float().mean()


@pytest.mark.parametrize(
    ("name", "flags", "said"),
    [
        ("connectome", ["--known", "0.2,1"], "`--known` must be below 1"),
        ("jigsaw", ["--parts", "9"], "`--parts` must be at most 8, the pixels of an edge; got 9"),
        ("sorting", ["--columns", "Quicksort"], "Gumbel-Sinkhorn"),
    ],
)
def test_a_wrong_option_is_a_sentence(name, flags, said, tmp_path, capsys):
    try:
        code = main(["reproduce", name, "--smoke", *flags, "--out", str(tmp_path)])
    except SystemExit as stopped:  # by argparse
        code = stopped.code
    assert code == 2 and said in capsys.readouterr().err


def test_a_missing_package_is_a_sentence(monkeypatch):
    monkeypatch.setattr(elegans.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(DataError, match=r"needs the package cect. Run: pip install"):
        elegans.elegans_wiring()


def test_connectome_smoke(tmp_path: Path):
    results, page = smoke("connectome", tmp_path)
    assert len(results["cells"]) == 8 and results["passed"]
    assert page.count("data:image/png") == 8 and "named, hard" in page
