"""Laws over classes: each draws what its `log_prob` says; the alias table is exact at any size."""

from __future__ import annotations

import copy
import math
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import argrad as ag
from argrad.class_noise.base import ClassNoise
from argrad.testing import assert_frequencies
from cases import CLASS_NOISES


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def law(noise: ClassNoise) -> torch.Tensor:
    return noise.log_prob(torch.arange(noise.num_classes)).exp()


def law_of_table(noise: ag.AliasTable) -> np.ndarray:
    """What the cells add up to."""
    keep, other = noise._on(torch.device("cpu"))[0].numpy().T
    given_away = np.bincount(other.astype(int), 1 - keep, minlength=noise.num_classes)
    return (keep + given_away) / noise.num_classes


# ---- every law -----------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", CLASS_NOISES, ids=repr)
def test_contract(noise: ClassNoise) -> None:
    assert law(noise).sum().item() == pytest.approx(1.0, abs=1e-12)
    assert law(noise).dtype == torch.float64
    for shape in [(), (0,), (7,), (3, 0), (2, 3, 4)]:
        x = noise.sample(shape)
        assert x.shape == shape and x.dtype == torch.int64
        assert bool(((x >= 0) & (x < noise.num_classes)).all())
    before = torch.get_rng_state()
    first, again = (noise.sample((5, 7), generator=seeded(3)) for _ in range(2))
    assert torch.equal(first, again) and torch.equal(before, torch.get_rng_state())
    same = pickle.loads(pickle.dumps(copy.deepcopy(noise)))
    assert torch.equal(same.sample((5, 7), generator=seeded(3)), first)


@pytest.mark.statistical
@pytest.mark.parametrize("noise", CLASS_NOISES, ids=repr)
def test_law(noise: ClassNoise) -> None:
    x = noise.sample((1000, 200), generator=seeded(1))
    assert_frequencies(torch.bincount(x.reshape(-1), minlength=noise.num_classes), law(noise))


@pytest.mark.parametrize("noise", CLASS_NOISES, ids=repr)
def test_draws_depend_on_row_and_column_alone(noise: ClassNoise) -> None:
    rng = ag.CounterRNG(5)
    whole = noise.sample((6, 8), generator=rng)
    part = noise.sample((2, 3), generator=rng.shift(rows=4, columns=5))
    assert torch.equal(whole[4:, 5:], part)


@pytest.mark.parametrize("noise", CLASS_NOISES, ids=repr)
def test_compiled_code_draws_the_same(noise: ClassNoise) -> None:
    rng = ag.CounterRNG(7)
    compiled = torch.compile(lambda r: noise.sample((4, 9), generator=r), backend="aot_eager")
    assert torch.equal(compiled(rng), noise.sample((4, 9), generator=rng))


@pytest.mark.parametrize("noise", CLASS_NOISES, ids=repr)
def test_negatives_are_shared_or_an_items_own(noise: ClassNoise) -> None:
    target = torch.zeros(2, 3, dtype=torch.int64)
    assert noise.negatives(target, 5).index.shape == (5,)
    own = noise.negatives(target, 5, shared=False)
    assert own.index.shape == (2, 3, 5) and own.count == 5 and own.allowed is None


def test_threads_do_not_change_the_draw() -> None:
    noise = ag.AliasTable(torch.rand(1000, generator=seeded()))
    before = torch.get_num_threads()
    try:
        draws = []
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            draws.append(noise.sample((7, 20_001), generator=seeded(2)))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(draws[0], draws[1]) and torch.equal(draws[0], draws[2])


# ---- the alias table -----------------------------------------------------------------------------


@given(st.lists(st.floats(0, 1e300), min_size=1, max_size=40).filter(lambda w: max(w) > 1e-300))
@settings(deadline=None)
def test_the_cells_add_up_to_the_weights(weights: list[float]) -> None:
    noise = ag.AliasTable(weights)
    w = np.array(weights) / max(weights)
    # sums of 40 numbers of the size of the mean, in float64
    np.testing.assert_allclose(law_of_table(noise), w / w.sum(), rtol=1e-13, atol=1e-15)
    assert (law_of_table(noise)[w == 0] == 0).all()


@pytest.mark.parametrize(
    "weights",
    [np.ones(7), np.full(10, 1 / 3), np.r_[1e6, np.ones(1000)], np.r_[np.ones(999), 0, 1e12, 0, 0]],
    ids=["ones", "thirds", "one rich", "one very rich"],
)
def test_tables_of_rounded_weights(weights: np.ndarray) -> None:
    table = law_of_table(ag.AliasTable(weights))
    np.testing.assert_allclose(table, weights / weights.sum(), rtol=1e-12)  # a thousand roundings
    assert (table[weights == 0] == 0).all()


@pytest.mark.statistical
@pytest.mark.parametrize(("n", "draws"), [(10, 100_000), (100_000, 5_000_000)])
def test_alias_frequencies(n: int, draws: int) -> None:
    weights = torch.rand(n, generator=seeded(1), dtype=torch.float64) + 0.2
    noise = ag.AliasTable(weights)
    x = noise.sample((draws,), generator=seeded(2))
    assert_frequencies(torch.bincount(x, minlength=n), weights)


def assert_pearson(counts: torch.Tensor, weights: torch.Tensor) -> None:
    """Pearson's statistic over millions of cells is normal, with a mean and variance known exactly.

    (The G statistic of `assert_frequencies` is not chi-square when cells expect few draws: its mean is off
    by one part in 6 E, which so many cells make visible.)
    """
    n, draws, p = len(counts), counts.sum().double(), weights / weights.sum()
    statistic = ((counts - draws * p).square() / (draws * p)).sum()
    variance = 2 * (n - 1) + ((1 / p).sum() - n**2 - 2 * n + 2) / draws
    z = (statistic - (n - 1)) / variance.sqrt()
    assert abs(z) < 4.9, f"z = {z:.1f}"  # once in a million


@pytest.mark.slow
@pytest.mark.statistical
def test_alias_frequencies_beyond_float32_integers() -> None:
    n = 2**24 + 5
    weights = torch.rand(n, generator=seeded(1), dtype=torch.float64) + 1.0
    noise = ag.AliasTable(weights)
    counts = torch.zeros(n, dtype=torch.int64)
    for i in range(15):
        x = noise.sample((10_000_000,), generator=seeded(i))
        counts += torch.bincount(x, minlength=n)
    assert_pearson(counts, weights)
    assert bool((counts[-5:] > 0).all())  # 6 draws expected of each: none once in 500 runs, seed fixed
    edges = torch.arange(n) // 4096  # and over coarse cells, where a drift would add up
    coarse = torch.zeros(int(edges[-1]) + 1, dtype=torch.float64)
    assert_frequencies(coarse.index_add(0, edges, counts.double()), coarse.index_add(0, edges, weights))
    with pytest.raises(RuntimeError, match=r"2\^24"):  # why this class exists
        torch.multinomial(weights, 1, replacement=True)


def test_weight_zero_is_never_drawn() -> None:
    noise = ag.AliasTable(np.r_[np.zeros(500), 1.0, np.zeros(500), 2.0])
    assert set(noise.sample((100_000,), generator=seeded()).tolist()) == {500, 1001}
    assert noise.log_prob(torch.tensor(0)) == -math.inf


def test_unigram_is_a_power() -> None:
    counts = torch.tensor([16.0, 1.0, 81.0])
    expected = torch.tensor([8.0, 1.0, 27.0], dtype=torch.float64) / 36
    torch.testing.assert_close(law(ag.Unigram(counts)), expected)
    torch.testing.assert_close(law(ag.Unigram(counts, 1.0)), counts.double() / 98)
    uniform = law(ag.Unigram(torch.tensor([5.0, 0.0, 2.0]), power=0.0))
    torch.testing.assert_close(uniform, torch.tensor([0.5, 0.0, 0.5], dtype=torch.float64))


def test_log_uniform_reaches_both_ends() -> None:
    noise = ag.LogUniform(5)
    x = noise.sample((100_000,), generator=seeded())
    assert x.min() == 0 and x.max() == 4
    big = ag.LogUniform(2**31 - 1)
    assert big.sample((1000,), generator=seeded()).max() > 2**24
    assert big.log_prob(torch.tensor(2**31 - 2)).isfinite()


# ---- in-batch ------------------------------------------------------------------------------------


def test_in_batch_negatives_are_the_other_targets() -> None:
    target = torch.tensor([[3, 5], [3, 1]])
    draw = ag.InBatch(10).negatives(target, k=99)
    assert draw.index.tolist() == [3, 5, 3, 1] and draw.count == 3
    assert draw.allowed is not None
    assert torch.equal(draw.allowed.reshape(4, 4), ~torch.eye(4, dtype=torch.bool))
    assert ag.InBatch(10).negatives(target[:0], k=1).index.shape == (0,)
    torch.testing.assert_close(law(ag.InBatch(4)), torch.full((4,), 0.25, dtype=torch.float64))
    weighted = ag.InBatch(2, weights=[1.0, 3.0])
    assert law(weighted).tolist() == pytest.approx([0.25, 0.75])


# ---- sentences -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: ag.AliasTable([]), "must be one-dimensional and not empty"),
        (lambda: ag.AliasTable([[1.0]]), "must be one-dimensional and not empty"),
        (lambda: ag.AliasTable([0.0, 0.0]), "must be non-negative, finite and not all 0"),
        (lambda: ag.AliasTable([1.0, -1.0]), "from -1 to 1"),
        (lambda: ag.AliasTable([1.0, math.nan]), "1 NaN"),
        (lambda: ag.AliasTable([1.0, math.inf]), "finite"),
        (lambda: ag.AliasTable("abc"), "must be a tensor, an array or a list"),
        (lambda: ag.Unigram([1.0], power=-1), "`Unigram(power=...)` must be at least 0"),
        (lambda: ag.LogUniform(0), "`LogUniform(num_classes=...)` must be an integer"),
        (lambda: ag.LogUniform(2.5), "`LogUniform(num_classes=...)` must be an integer"),
        (lambda: ag.InBatch(3, weights=[1.0]), "must have 3 entries; got 1"),
        (lambda: ag.InBatch(3).sample((2,)), "`InBatch` cannot draw by itself"),
        (lambda: ag.InBatch(3).negatives(torch.tensor([1]), 1), "at least two items"),
        (lambda: ag.LogUniform(3).log_prob(torch.tensor([3])), "classes from 0 to 2; got int64[1]"),
        (lambda: ag.AliasTable([1.0]).log_prob(torch.tensor([-1])), "classes from 0 to 0"),
        (lambda: ag.LogUniform(3).log_prob(torch.tensor([0.0])), "must hold class numbers"),
        (lambda: ag.AliasTable([1.0]).sample((2,), generator=5), "must be a `torch.Generator`"),
    ],
)
def test_wrong_input_gets_a_sentence(make, words: str) -> None:
    with pytest.raises(ag.ArgradError) as caught:
        make()
    assert words in str(caught.value)
