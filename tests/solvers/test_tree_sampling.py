"""Random trees: the exact law by chi-square, robustness at any scale, reproducibility."""

from __future__ import annotations

import math

import pytest
import torch
from scipy import stats
from torch import Tensor

from argrad._errors import InputError
from argrad.random import CounterRNG
from argrad.solvers import _star_mesh_torch, tree_sampling
from argrad.solvers.arborescence import arborescence_argmax
from argrad.solvers.matrix_tree import arborescence_marginals, spanning_tree_marginals
from argrad.solvers.tree_sampling import arborescence_sample, spanning_tree_sample
from tree_oracle import ROOTS, arborescences, law, spanning_trees

COUNT = 40_000
ALPHA = 1e-6


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=seeded(seed))


def p_value(samples: Tensor, trees: Tensor, p: Tensor) -> float:
    """Chi-square of how often each tree came; trees expected fewer than 5 times are one class."""
    places = 2 ** torch.arange(trees[0].numel())
    names = (trees.flatten(-2).long() * places).sum(-1)
    found = (samples.flatten(-2).long() * places).sum(-1)
    order = names.argsort()
    index = torch.searchsorted(names[order], found).clamp(max=len(names) - 1)
    assert (names[order][index] == found).all(), "something that is not a tree was drawn"
    observed = torch.bincount(index, minlength=len(names)).double()
    expected = p[order] * len(samples)
    rare = expected < 5
    observed = torch.cat([observed[~rare], observed[rare].sum()[None]])
    expected = torch.cat([expected[~rare], expected[rare].sum()[None]])
    keep = expected > 0
    assert (observed[~keep] == 0).all()
    if keep.sum() == 1:
        return 1.0
    return float(
        stats.chisquare(observed[keep], expected[keep] * (observed.sum() / expected.sum())).pvalue
    )


@pytest.fixture(params=["linear", "log"])
def tables(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both kinds of tables."""
    if request.param == "log":
        monkeypatch.setattr(
            tree_sampling,
            "_tables",
            lambda graphs, single: _star_mesh_torch.tables(graphs.double(), single),
        )
    return request.param


# ---- the law -------------------------------------------------------------------------------------


@pytest.mark.statistical
@pytest.mark.parametrize(("root", "single_root"), ROOTS)
@pytest.mark.parametrize("n", [3, 4, 5])
@pytest.mark.parametrize("density", [1.0, 0.6])
def test_law(tables: str, n: int, root: int | None, single_root: bool, density: float) -> None:
    trees = arborescences(n, root, single_root)
    scores = 1.5 * normal(n, n, seed=n)
    allowed = torch.rand(n, n, generator=seeded(7)) < density
    scores = scores.masked_fill(~(allowed | (trees[0] > 0)), -math.inf)  # at least one tree is left
    _, p = law(trees, scores)
    z = arborescence_sample(scores, (COUNT,), root=root, single_root=single_root, generator=seeded())
    assert p_value(z, trees, p) > ALPHA


@pytest.mark.statistical
@pytest.mark.parametrize("n", [2, 3, 4, 5])
def test_law_undirected(tables: str, n: int) -> None:
    trees = spanning_trees(n)
    scores = 2 * normal(n, n, seed=n)
    _, p = law(trees, scores / 2)
    z = spanning_tree_sample(scores, (COUNT,), generator=seeded())
    assert torch.equal(z, z.mT)
    assert p_value(z, trees, p) > ALPHA


@pytest.mark.statistical
def test_law_of_a_batch() -> None:
    """Each graph of a batch has its own law, and graphs are independent."""
    scores = normal(2, 4, 4)
    trees = arborescences(4, 0)
    z = arborescence_sample(scores, (200, 200), generator=seeded(1)).flatten(0, 1)
    for g in range(2):
        assert p_value(z[:, g], trees, law(trees, scores[g])[1]) > ALPHA
    pairs = (z[:, 0, :, None, :, None] * z[:, 1, None, :, None, :]).mean(0)
    product = z[:, 0].mean(0)[:, None, :, None] * z[:, 1].mean(0)[None, :, None, :]
    # correlations of 144 pairs of indicators: standard error at most 1/4 / sqrt(COUNT)
    assert (pairs - product).abs().max() < 6 * 0.25 / math.sqrt(COUNT)


@pytest.mark.statistical
@pytest.mark.parametrize("scale", [1.0, 10.0, 50.0])
def test_frequencies_of_larger_graphs(scale: float) -> None:
    scores = scale * normal(2, 30, 30)
    count = 4000
    for f, marginals in (
        (arborescence_sample, arborescence_marginals),
        (spanning_tree_sample, spanning_tree_marginals),
    ):
        mu = marginals(scores)
        mean = f(scores, (count,), generator=seeded()).mean(0)
        error = (mu * (1 - mu) / count).clamp(min=0).sqrt()
        # 1800 arcs: 7 standard errors, and a few counts where the normal law is no guide
        assert ((mean - mu).abs() <= 7 * error + 6 / count).all()


# ---- any scale -----------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [100.0, 1e4])
def test_peaked_scores_give_the_best_tree(scale: float) -> None:
    """Wilson's walk would circle for exp(100) steps here."""
    scores = scale * normal(8, 25, 25)
    z = arborescence_sample(scores, (20,), generator=seeded())
    mu = arborescence_marginals(scores)
    assert (z <= (mu > 0)).all()
    sure = (mu > 1 - 1e-9) | (mu < 1e-9)
    best = arborescence_argmax(scores).expand_as(z)
    assert sure.float().mean() > 0.9
    assert torch.equal(z[:, sure], best[:, sure])


def test_a_trap_does_not_hang() -> None:
    scores = torch.full((6, 6), -1000.0)
    scores[1:4, 1:4] = 1000.0  # nodes 1, 2, 3 hold together
    z = arborescence_sample(scores, (50,), generator=seeded())
    assert (z[:, 1:4, 1:4].sum((-2, -1)) == 2).all()
    assert (z.sum(-2) == torch.tensor([0.0, 1, 1, 1, 1, 1])).all()


# ---- calls ---------------------------------------------------------------------------------------


def test_same_generator_same_trees() -> None:
    scores = normal(5, 9, 9)
    a = arborescence_sample(scores, (3,), generator=seeded(2))
    assert torch.equal(arborescence_sample(scores, (3,), generator=seeded(2)), a)
    assert not torch.equal(arborescence_sample(scores, (3,), generator=seeded(3)), a)
    before = torch.get_rng_state()
    spanning_tree_sample(scores, generator=seeded())
    assert torch.equal(torch.get_rng_state(), before)
    spanning_tree_sample(scores)
    assert not torch.equal(torch.get_rng_state(), before)


def test_threads_do_not_change_the_trees() -> None:
    scores = normal(40, 20, 20)
    threads = torch.get_num_threads()
    try:
        drawn = []
        for count in (1, 3):
            torch.set_num_threads(count)
            drawn.append(arborescence_sample(scores, (50,), generator=seeded()))
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(*drawn)


def test_counter_rng_does_not_depend_on_chunks() -> None:
    scores, rng = normal(6, 7, 7), CounterRNG(5)
    whole = arborescence_sample(scores, root=None, generator=rng)
    parts = [
        arborescence_sample(scores[i : i + 2], root=None, generator=rng.shift(rows=i))
        for i in (0, 2, 4)
    ]
    assert torch.equal(torch.cat(parts), whole)
    assert not torch.equal(arborescence_sample(scores, root=None, generator=rng.fold(1)), whole)


def test_shapes_and_dtypes() -> None:
    for dtype in (torch.bfloat16, torch.float32, torch.float64):
        z = arborescence_sample(torch.zeros(2, 3, 5, 5, dtype=dtype), (4, 1), generator=seeded())
        assert z.shape == (4, 1, 2, 3, 5, 5)
        assert z.dtype == dtype
        assert (z.sum(-2)[..., 1:] == 1).all()
    assert arborescence_sample(torch.zeros(0, 5, 5), (4,)).shape == (4, 0, 5, 5)
    assert arborescence_sample(torch.zeros(2, 5, 5), (0,)).shape == (0, 2, 5, 5)
    assert arborescence_sample(torch.zeros(1, 1), (2,)).tolist() == [[[0.0]], [[0.0]]]
    assert arborescence_sample(torch.zeros(1, 1), root=None).tolist() == [[0.0]]
    assert spanning_tree_sample(torch.zeros(2, 2)).tolist() == [[0.0, 1.0], [1.0, 0.0]]


def test_one_allowed_tree(tables: str) -> None:
    chain = torch.zeros(6, 6).diagonal_scatter(torch.ones(5), 1)
    scores = torch.full((6, 6), -math.inf).masked_fill(chain > 0, -300.0)
    for root in (0, None):
        z = arborescence_sample(scores, (10,), root=root, generator=seeded())
        assert torch.equal(z, chain.expand(10, 6, 6))


def test_no_allowed_tree_is_a_sentence() -> None:
    scores = torch.zeros(3, 4, 4)
    scores[1, :, 2] = -math.inf
    with pytest.raises(InputError, match="leave no tree"):
        arborescence_sample(scores, (2,))
    with pytest.raises(InputError, match="no tree"):
        arborescence_sample(torch.zeros(1, 1), single_root=True)
    with pytest.raises(InputError, match="must be a node number"):
        arborescence_sample(scores, root=None, single_root=True)


def test_vmap() -> None:
    scores = normal(4, 6, 6)
    same = torch.func.vmap(lambda s: arborescence_sample(s, (3,), generator=CounterRNG(1)))(scores)
    loop = [arborescence_sample(s, (3,), generator=CounterRNG(1)) for s in scores]
    assert torch.equal(same, torch.stack(loop))
    alike = scores[:1].expand(8, 6, 6)
    different = torch.func.vmap(arborescence_sample, randomness="different")(alike)
    assert not torch.equal(different[0], different[1]) or not torch.equal(different[0], different[2])


def test_compiled() -> None:
    scores = normal(3, 6, 6)
    rng = CounterRNG(3)
    compiled = torch.compile(
        lambda s: spanning_tree_sample(s, (2,), generator=rng), fullgraph=True, backend="aot_eager"
    )
    assert torch.equal(compiled(scores), spanning_tree_sample(scores, (2,), generator=rng))


def test_operator_contract() -> None:
    args = (normal(2, 4, 3), torch.arange(4), 3, False)
    torch.library.opcheck(tree_sampling._draw_heads, args)
