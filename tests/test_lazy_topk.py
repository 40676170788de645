"""Lazy Gumbel-top-k: the law of all items from a few of them; bounds that do not hold are noticed."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from scipy import stats
from torch import Tensor

import argrad as ag
from argrad.streams import lazy
from argrad.testing import assert_cdf, assert_frequencies, assert_mean

INF = math.inf
LOGITS = torch.tensor([0.3, -1.0, 2.0, -2.0, 0.5, -3.0, -1.5])


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def draw(logits: Tensor, m: int, k: int, rows: int = 1, **options) -> ag.LazyTopK:
    """From the m best of `logits`, the same for all rows."""
    best = logits.topk(m)
    bound = best.values[-1]
    values, ids = (t.expand(rows, -1) for t in best)
    return ag.lazy_gumbel_topk(values, ids, bound, len(logits), lambda i: logits[i], k, **options)


def orders(logits: Tensor, k: int) -> dict[tuple[int, ...], float]:
    p = logits.double().softmax(-1).tolist()
    result = {}
    for order in itertools.permutations(range(len(p)), k):
        chance, left = 1.0, 1.0
        for i in order:
            chance, left = chance * p[i] / left, left - p[i]
        result[order] = chance
    return result


@pytest.mark.statistical
@pytest.mark.parametrize("m", [1, 2, 3, 5, 7])
@pytest.mark.parametrize("k", [1, 2])
def test_order_law(k: int, m: int) -> None:
    """Few clocks and all clocks both occur, row by row."""
    top = draw(LOGITS, m, k, 8_000, generator=seeded(m))
    expected = orders(LOGITS, k)
    codes = (top.indices * 7 ** torch.arange(k)).sum(-1)
    cells = torch.zeros(7**k)
    for order, chance in expected.items():
        cells[sum(i * 7**j for j, i in enumerate(order))] = chance
    assert_frequencies(torch.bincount(codes, minlength=7**k), cells)
    assert top.valid.all()


@pytest.mark.statistical
@pytest.mark.parametrize("m", [3, 30])
def test_few_ticks_have_the_law_of_the_maximum(m: int) -> None:
    """The largest perturbed logit is Gumbel(log Z); its place is Categorical. 400 items, most of them never seen."""
    logits = 2 * torch.randn(400, dtype=torch.float64, generator=seeded(5))
    top = draw(logits, m, 2, 10_000, generator=seeded(1))
    assert_cdf(top.perturbed[:, 0], lambda x: stats.gumbel_r.cdf(x, loc=logits.logsumexp(0).item()))
    assert_frequencies(torch.bincount(top.indices[:, 0], minlength=400), logits.softmax(0))


@pytest.mark.statistical
def test_inclusion_and_kappa_make_unbiased_weights() -> None:
    """q = 1 - exp(-exp(theta - kappa)) is the chance of an item given kappa: sums of e^theta f come out right."""
    logits = torch.randn(300, dtype=torch.float64, generator=seeded(2)) * 2
    top = draw(logits, 20, 6, 20_000, generator=seeded(3))
    q = -torch.expm1(-torch.exp(top.logits - top.kappa[:, None]))
    f = torch.arange(300.0, dtype=torch.float64)
    estimate = (top.logits.exp() / q * f[top.indices]).sum(-1, keepdim=True)
    assert_mean(estimate, (logits.exp() * f).sum()[None])


def test_repeated_ticks_are_dropped() -> None:
    rank = torch.tensor([[3, 1, 3, 2, 1, 3], [0, 0, 1, 2, 3, 4]])
    expected = [[False, False, True, False, True, True], [False, True, False, False, False, False]]
    assert lazy._repeated(rank).tolist() == expected


def test_ranks_outside_of_the_top() -> None:
    ids = torch.tensor([[5, 0, 2], [7, 8, 9]])
    rank = torch.arange(7).expand(2, 7).contiguous()
    assert lazy._outside(rank, ids).tolist() == [[1, 3, 4, 6, 7, 8, 9], [0, 1, 2, 3, 4, 5, 6]]


def test_few_items_are_touched() -> None:
    """One million items, k = 8: about (n - m) e^(b - kappa), thousands and not a million."""
    logits = 3 * torch.randn(1_000_000, generator=seeded(0))
    best = logits.topk(3000)
    seen = []

    def lookup(ids: Tensor) -> Tensor:
        seen.append(ids.shape)
        return logits[ids]

    top = ag.lazy_gumbel_topk(
        best.values, best.indices, best.values[-1], 1_000_000, lookup, 8, generator=ag.CounterRNG(0)
    )
    assert len(seen) == 1
    assert seen[0] == (int(top.touched),)
    assert 50 < int(top.touched) < 5000
    assert top.perturbed.diff().max() < 0
    assert top.kappa < top.perturbed[-1]
    torch.testing.assert_close(top.logits, logits[top.indices])


def test_rows_do_not_depend_on_each_other() -> None:
    logits = torch.randn(5, 200, generator=seeded(1)) * torch.tensor([0.1, 1.0, 3.0, 5.0, 0.5])[:, None]
    best = logits.topk(12, -1)
    rng = ag.CounterRNG(4)

    def some(rows: slice) -> ag.LazyTopK:
        own = logits[rows]
        return ag.lazy_gumbel_topk(
            best.values[rows],
            best.indices[rows],
            best.values[rows, -1],
            200,
            lambda ids: own.gather(-1, ids),
            4,
            generator=rng.shift(rows=rows.start),
        )

    whole = some(slice(0, 5))
    for row in range(5):
        part = some(slice(row, row + 1))
        assert torch.equal(part.indices[0], whole.indices[row])
        assert torch.equal(part.perturbed[0], whole.perturbed[row])
        assert int(part.touched[0]) == int(whole.touched[row])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("batch", [(), (3,), (2, 3), (0,)])
def test_shapes_and_dtypes(batch: tuple[int, ...], dtype: torch.dtype) -> None:
    best = torch.randn(*batch, 5).to(dtype)
    ids = torch.arange(5).expand(*batch, 5)
    top = ag.lazy_gumbel_topk(best, ids, -5.0, 50, lambda i: torch.full(i.shape, -6.0).to(dtype), 8)
    assert (
        top.indices.shape == top.logits.shape == top.perturbed.shape == top.valid.shape == (*batch, 8)
    )
    assert top.kappa.shape == top.touched.shape == batch
    assert {top.logits.dtype, top.perturbed.dtype, top.kappa.dtype} == {dtype}


def test_more_than_there_is() -> None:
    logits = torch.tensor([1.0, 0.0, -INF, -1.0])
    top = draw(logits, 2, 6)
    assert top.valid.tolist() == [[True] * 3 + [False] * 3]
    assert set(top.indices[0, :3].tolist()) == {0, 1, 3}
    assert (top.logits[0, 3:] == -INF).all()
    assert top.kappa == -INF
    nothing_else = ag.lazy_gumbel_topk(
        torch.tensor([0.0, -INF]), torch.tensor([4, 2]), -INF, 9, lambda i: torch.full(i.shape, -INF), 3
    )
    assert nothing_else.valid.tolist() == [True, False, False]
    assert nothing_else.indices.tolist() == [4, 0, 0]
    assert nothing_else.touched == 0


def test_everything_in_the_top_needs_no_tail() -> None:
    top = draw(LOGITS, 7, 7, generator=seeded(0))
    assert sorted(top.indices[0].tolist()) == list(range(7))
    assert top.touched == 0


def test_logits_have_the_gradient_of_the_lookup() -> None:
    logits = torch.randn(60, dtype=torch.float64, requires_grad=True)
    best = logits.topk(3)
    top = ag.lazy_gumbel_topk(best.values, best.indices, best.values[-1], 60, lambda i: logits[i], 20)
    grad = torch.autograd.grad(top.logits.sum(), logits)[0]
    assert torch.equal(grad.nonzero()[:, 0], top.indices.sort().values)


def test_same_generator_same_draw() -> None:
    before = torch.get_rng_state()
    a, b = (draw(LOGITS, 3, 2, 50, generator=seeded(1)) for _ in range(2))
    assert torch.equal(a.indices, b.indices)
    assert torch.equal(torch.get_rng_state(), before)
    assert not torch.equal(a.indices, draw(LOGITS, 3, 2, 50, generator=seeded(2)).indices)


def answer(ids: Tensor) -> Tensor:
    return torch.full(ids.shape, -1.0)


TOP, IDS = torch.tensor([1.0, 0.0]), torch.tensor([3, 1])


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((TOP, IDS, -2.0, 50, answer, 3), "must not be below any logit of the tail; .* 1 above it"),
        ((TOP, IDS, math.nan, 50, answer, 3), "bound=.* must be a number"),
        ((TOP, IDS, torch.zeros(3), 50, answer, 3), "bound=.* one for each row of the batch"),
        ((TOP, IDS, 0.0, 3, answer, 3), "must hold ids from 0 to 2"),
        ((TOP, IDS * 0, 0.0, 50, answer, 3), "must be different in each row"),
        ((TOP, IDS[:1], 0.0, 50, answer, 3), r"must have the shape of `top_logits`, \(2,\)"),
        ((TOP, IDS.float(), 0.0, 50, answer, 3), "must be an int64 tensor; got torch.float32"),
        ((TOP * math.nan, IDS, 0.0, 50, answer, 3), "must not hold NaN"),
        ((TOP.long(), IDS, 0.0, 50, answer, 3), "must be floating point"),
        ((TOP[:0], IDS[:0], 0.0, 50, answer, 3), "at least one item"),
        ((TOP, IDS, 0.0, 0, answer, 3), "n=.* at least 1"),
        ((TOP, IDS, 0.0, 50, answer, 0), "k=.* at least 1"),
        ((TOP, IDS, 0.0, 50, lambda i: answer(i)[:1], 3), "lookup=.* must return shape"),
        ((TOP, IDS, 0.0, 50, lambda i: i, 3), "lookup=.* must be floating point"),
        ((TOP, IDS, 0.0, 50, lambda i: answer(i) * math.nan, 3), "lookup=.* must not hold NaN"),
    ],
)
def test_sentences(arguments, sentence: str) -> None:
    with pytest.raises((ag.InputError, ag.InputTypeError), match=sentence):
        ag.lazy_gumbel_topk(*arguments)


def test_transforms_are_refused() -> None:
    with pytest.raises(ag.UnsupportedError, match="depends on the noise"):
        torch.vmap(lambda x: ag.lazy_gumbel_topk(x, IDS, 0.0, 50, answer, 3))(TOP.expand(2, 2))
