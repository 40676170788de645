"""Full-tail noise: laws, tails, generators, and the kernel against its torch twin."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

import argrad as ag
from argrad import _hash, random
from argrad.testing import ALPHA, assert_cdf, assert_frequencies

CPU = torch.device("cpu")
KINDS = ["gumbel", "exponential", "logistic", "uniform", "normal"]
LAWS = {
    "gumbel": stats.gumbel_r.cdf,
    "exponential": stats.expon.cdf,
    "logistic": stats.logistic.cdf,
    "uniform": stats.uniform.cdf,
    "normal": stats.norm.cdf,
}
DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]


def draw(kind: str, *shape: int, **options: object) -> Tensor:
    return getattr(random, kind)(shape, **options)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def assert_rate(hits: int, draws: float, p: float, alpha: float = ALPHA) -> None:
    """`hits` of `draws` is not unlikely under probability `p` (exact binomial, two-sided)."""
    low = stats.binom.cdf(hits, int(draws), p)
    high = stats.binom.sf(hits - 1, int(draws), p)
    assert min(low, high) > alpha / 2, f"{hits} hits, {draws * p:.1f} expected"


# ---- laws ----------------------------------------------------------------------------------------


@pytest.mark.statistical
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", KINDS)
def test_law(kind: str, dtype: torch.dtype) -> None:
    x = draw(kind, 400, 500, dtype=dtype, generator=seeded())
    assert_cdf(x, LAWS[kind])


@pytest.mark.statistical
@pytest.mark.parametrize("generator", [seeded(3), ag.CounterRNG(3)], ids=["torch", "counter"])
def test_neighbours_are_independent(generator: object) -> None:
    u = random.uniform((1000, 1000), dtype=torch.float64, generator=generator)
    for a, b in ((u[1:], u[:-1]), (u[:, 1:], u[:, :-1]), (u[2:, 1:], u[:-2, :-1])):
        cells = (a * 16).long() * 16 + (b * 16).long()
        assert_frequencies(
            torch.bincount(cells.reshape(-1), minlength=256), torch.full((256,), 1 / 256)
        )


@pytest.mark.statistical
def test_streams_are_independent() -> None:
    rng = ag.CounterRNG(0)
    streams = [rng, rng.fold(0), rng.fold(1), rng.fold(0, 1), rng.fold(1, 0), ag.CounterRNG(1)]
    u = torch.stack([s.uniform(300, 300, dtype=torch.float64).reshape(-1) for s in streams])
    correlation = torch.corrcoef(u) - torch.eye(len(u))
    bound = stats.norm.isf(ALPHA / 2 / 15) / 300  # of 90000 independent pairs, for 15 correlations
    assert correlation.abs().max() < bound


@pytest.mark.statistical
def test_every_bit_is_fair() -> None:
    k1, k2 = (
        _hash.splitmix(torch.arange(1000)[:, None]),
        _hash.splitmix(torch.arange(1000)[:, None] + 7),
    )
    z = _hash.word(k1, k2, torch.arange(1000))
    ones = torch.stack([((z >> i) & 1).sum() for i in range(64)]).double()
    score = (ones - 5e5) / 500
    assert score.abs().max() < stats.norm.isf(ALPHA / 2 / 64)


@pytest.mark.parametrize("dtype", DTYPES)
def test_ranges(dtype: torch.dtype) -> None:
    u = draw("uniform", 1000, 1000, dtype=dtype)
    assert u.min() > 0
    assert u.max() < 1
    e = draw("exponential", 1000, 1000, dtype=dtype)
    assert e.min() > 0
    for kind in KINDS:
        assert draw(kind, 1000, 1000, dtype=dtype).isfinite().all()


# ---- tails ---------------------------------------------------------------------------------------


@pytest.mark.statistical
def test_small_exponentials_and_large_gumbels() -> None:
    """A float32 exponential from 24 random bits has no value below 6e-8."""
    n = 2e7
    e = draw("exponential", 1000, 20_000, generator=seeded(1))
    g = draw("gumbel", 1000, 20_000, generator=seeded(2))
    for p in (1e-5, 1e-6, 3e-7):
        assert_rate(int((e < p).sum()), n, -math.expm1(-p))
        assert_rate(int((g > -math.log(p)).sum()), n, -math.expm1(-p))
        assert_rate(int((e > -math.log(p)).sum()), n, p)
        assert_rate(int((g < -math.log(-math.log(p))).sum()), n, p)


@pytest.mark.statistical
@pytest.mark.parametrize("kind", ["logistic", "normal"])
def test_two_sided_tails(kind: str) -> None:
    n = 1e7
    x = draw(kind, 1000, 10_000, generator=seeded(4))
    law = {"logistic": stats.logistic, "normal": stats.norm}[kind]
    for p in (1e-5, 1e-6):
        assert_rate(int((x > law.isf(p)).sum()), n, p)
        assert_rate(int((x < law.ppf(p)).sum()), n, p)


def test_the_smallest_words_give_the_far_ends() -> None:
    """All bits 0 (but the lowest, which says which end): nothing is infinite, nothing is cut at 2^-24."""
    for dtype in (torch.float32, torch.float64):
        low, high = torch.tensor([0]), torch.tensor([1])
        assert _hash.exponential(high, dtype).item() == 2.0**-64
        assert _hash.exponential(low, dtype).item() == pytest.approx(64 * math.log(2))
        assert _hash.gumbel(high, dtype).item() == pytest.approx(64 * math.log(2))
        assert _hash._logistic(high, dtype).item() == pytest.approx(-64 * math.log(2))
        ones = torch.tensor([-1])
        assert 0 < _hash.uniform(low, dtype).item() < 1e-18
        assert _hash.uniform(ones, dtype).item() < 1


@pytest.mark.statistical
def test_float32_ties_among_the_largest_are_as_rare_as_in_float64() -> None:
    """Of 5e6 Gumbels the top 1 % lie where float32 is dense enough: ties are those of rounding alone."""
    g = draw("gumbel", 50, 100_000, dtype=torch.float32, generator=ag.CounterRNG(9))
    top = g.reshape(-1).topk(50_000).values
    ties = int((top[1:] == top[:-1]).sum())
    exact = draw("gumbel", 50, 100_000, dtype=torch.float64, generator=ag.CounterRNG(9))
    rounded = exact.reshape(-1).topk(50_000).values.float()
    expected = int((rounded[1:] == rounded[:-1]).sum())
    # Poisson counts of the same rate; 24-bit noise has 90 % ties here
    assert abs(ties - expected) < 5 * math.sqrt(ties + expected)
    assert ties < 0.25 * len(top)


@pytest.mark.slow
@pytest.mark.statistical
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_a_billion_draws_have_the_right_tail(compiled: bool) -> None:
    """P(E < 1e-7) and P(E < 1e-8) within 4 sigma in 1e9 draws, in chunks of 1e7."""

    def counts(step: Tensor) -> Tensor:
        e = random.exponential((1000, 10_000))
        return torch.stack([(e < 1e-7).sum(), (e < 1e-8).sum()]) + step

    run = torch.compile(counts, fullgraph=True) if compiled else counts
    total = sum(run(torch.zeros((), dtype=torch.int64)) for _ in range(100))
    for count, p in zip(total.tolist(), (1e-7, 1e-8), strict=True):
        assert abs(count - 1e9 * p) < 4 * math.sqrt(1e9 * p), f"{count} below {p}"


WAYS = {
    "gumbel_max": lambda x, i: ag.gumbel_max(x, generator=seeded(i)),
    "gumbel_max-counter": lambda x, i: ag.gumbel_max(x, generator=ag.CounterRNG(i)),
    "gumbel_topk": lambda x, i: ag.gumbel_topk(x, 1, generator=seeded(i)).indices[:, 0],
    "gumbel_softmax": lambda x, i: ag.gumbel_softmax(x, 0.5, generator=seeded(i)).argmax(-1),
}
ways = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)


@pytest.mark.slow
@pytest.mark.statistical
@pytest.mark.parametrize("rare", [0, 1])
@ways
def test_a_rare_class_of_two_is_drawn_at_its_rate(way, rare: int) -> None:
    rows, chunks, p = 5_000_000, 20, 1e-7
    logits = torch.zeros(rows, 2)
    logits[:, rare] = math.log(p)
    hits = sum(int((way(logits, i) == rare).sum()) for i in range(chunks))
    assert_rate(hits, rows * chunks, p / (1 + p))


@pytest.mark.slow
@pytest.mark.statistical
@pytest.mark.parametrize("common", [0, 1000])
@ways
def test_many_rare_classes_are_drawn_at_their_rate(way, common: int) -> None:
    """1000 classes of 1e-8 each: 24-bit noise draws them 65 times too rarely."""
    rows, chunks, p = 20_000, 100, 1e-8
    logits = torch.full((rows, 1001), math.log(p))
    logits[:, common] = 0
    hits = sum(int((way(logits, i) != common).sum()) for i in range(chunks))
    assert_rate(hits, rows * chunks, 1000 * p / (1 + 1000 * p))


# ---- generators ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_global_generator_is_left_alone(kind: str, dtype: torch.dtype) -> None:
    before = torch.get_rng_state()
    for generator in (seeded(), ag.CounterRNG(0)):
        draw(kind, 3, 5, dtype=dtype, generator=generator)
    assert torch.equal(torch.get_rng_state(), before)
    draw(kind, 3, 5, dtype=dtype)
    assert not torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("kind", KINDS)
def test_same_state_same_numbers(kind: str) -> None:
    one = seeded(5)
    first, second = draw(kind, 4, 6, generator=one), draw(kind, 4, 6, generator=one)
    assert not torch.equal(first, second)
    assert torch.equal(first, draw(kind, 4, 6, generator=seeded(5)))
    torch.manual_seed(5)
    assert torch.equal(first, draw(kind, 4, 6))


def test_the_cost_to_a_generator_does_not_depend_on_the_size() -> None:
    small, large = seeded(), seeded()
    draw("gumbel", 1, generator=small)
    draw("normal", 300, 300, generator=large)
    assert torch.equal(small.get_state(), large.get_state())


def test_shapes() -> None:
    for shape in ((), (3,), (2, 3), (2, 0, 3), (0,), (4, 1, 5)):
        assert random.gumbel(shape).shape == shape
    assert random.gumbel(torch.Size([2, 3]), dtype=torch.float64).dtype == torch.float64
    assert random.gumbel((2,)).dtype == torch.get_default_dtype()
    assert random.gumbel((2,), device="meta").device.type == "meta"


# ---- counters ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_any_chunk_is_the_same_draw(kind: str, dtype: torch.dtype) -> None:
    rng = ag.CounterRNG(17, row=2**40, column=3)
    whole = draw(kind, 13, 37, dtype=dtype, generator=rng)
    for rows, columns in (
        (slice(0, 5), slice(0, 37)),
        (slice(5, 13), slice(11, 12)),
        (slice(2, 3), slice(1, 36)),
    ):
        part = rng.shift(rows.start, columns.start)
        shape = rows.stop - rows.start, columns.stop - columns.start
        assert torch.equal(draw(kind, *shape, dtype=dtype, generator=part), whole[rows, columns])


def test_a_batch_is_rows() -> None:
    rng = ag.CounterRNG(1)
    flat = random.gumbel((6, 5), generator=rng)
    assert torch.equal(random.gumbel((2, 3, 5), generator=rng).reshape(6, 5), flat)
    assert torch.equal(random.gumbel((5,), generator=rng), flat[0])
    assert torch.equal(random.gumbel((), generator=rng), flat[0, 0])


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_any_number_of_threads_is_the_same_draw(count: int, threads) -> None:
    rng = ag.CounterRNG(5)
    expected = rng.gumbel(999, 701)  # enough work for several threads
    with threads(count):
        assert torch.equal(rng.gumbel(999, 701), expected)


def test_many_threads_at_once() -> None:
    rng = ag.CounterRNG(5)
    expected = [rng.fold(i).gumbel(50, 70) for i in range(40)]
    with ThreadPoolExecutor(8) as pool:
        drawn = list(pool.map(lambda i: rng.fold(i).gumbel(50, 70), range(40)))
    assert all(map(torch.equal, drawn, expected))


def test_threads_with_own_generators_agree_with_one_thread() -> None:
    """Each thread has its own place for the words it draws."""

    def work(seed: int) -> Tensor:
        generator = seeded(seed)
        return torch.stack([random.gumbel((20, 30), generator=generator) for _ in range(50)])

    expected = [work(i) for i in range(8)]
    with ThreadPoolExecutor(8) as pool:
        assert all(map(torch.equal, pool.map(work, range(8)), expected))


def test_counter_rng_is_a_value() -> None:
    rng = ag.CounterRNG(3)
    assert rng == ag.CounterRNG(3)
    assert hash(rng) == hash(ag.CounterRNG(3))
    assert repr(rng) == "CounterRNG(seed=3, row=0, column=0)"
    assert rng.shift(1, 2).shift(3, 4) == ag.CounterRNG(3, 4, 6)
    assert rng.fold(1) != rng.fold(2)
    assert rng.fold(1, 2) == rng.fold(1).fold(2)
    assert rng.fold(1, 2) != rng.fold(2, 1)
    assert rng.fold(-1) == rng.fold(2**64 - 1)
    assert ag.CounterRNG(np.int64(3)) == rng
    assert rng.fold(np.int32(1)) == rng.fold(1)
    assert torch.equal(ag.CounterRNG(-5).gumbel(2, 3), ag.CounterRNG(2**64 - 5).gumbel(2, 3))


def test_split_never_repeats_a_source() -> None:
    sources = random.split(ag.CounterRNG(0), 5)
    assert len(set(sources)) == 5
    generator = seeded()
    assert all(source is generator for source in random.split(generator, 3))


# ---- kernel and twin -----------------------------------------------------------------------------


def test_the_integers_agree_bit_for_bit() -> None:
    from argrad._kernels import bits

    key = np.array([0x0123456789ABCDEF, 0xFEDCBA9876543210], np.uint64)
    rows, columns = torch.arange(7) * 1_000_003, torch.arange(11) * 99_991
    k1 = _hash.splitmix(_hash.times(rows ^ _hash.signed(int(key[0])), _hash.GOLDEN))
    k2 = _hash.splitmix(_hash.times(rows ^ _hash.signed(int(key[1])), _hash.ROW_2))
    twin = _hash.word(k1[:, None], k2[:, None], columns)
    for i, row in enumerate(rows.tolist()):
        keys = [np.uint64(k) for k in bits.row_keys(key, np.uint64(row))]
        for j, column in enumerate(columns.tolist()):
            word = int(bits.word(*keys, np.uint64(column)))
            assert _hash.signed(word) == twin[i, j].item()


# In ulp of max(|x|, 1): near 0 a logarithm of nearly 1 loses relative, not absolute, accuracy.
# Normals multiply a radius of up to 6 by a cosine polynomial with an error of 2e-7.
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_twin_agrees_within_two_ulp(kind: str, dtype: torch.dtype) -> None:
    rng = ag.CounterRNG(11, row=12345, column=2**33)
    kernel = random._draw_kernel(kind, (200, 1000), dtype, random.words(rng))
    twin = random._draw_torch(kind, (200, 1000), dtype, CPU, rng)
    ulp = torch.finfo(dtype).eps * twin.abs().clamp(min=1.0)
    allowed = 16 if kind == "normal" and dtype == torch.float32 else 2
    assert ((kernel - twin).abs() <= allowed * ulp).all()


@pytest.mark.parametrize("kind", KINDS)
def test_float32_is_float64_rounded(kind: str) -> None:
    rng = ag.CounterRNG(2)
    wide = draw(kind, 200, 500, dtype=torch.float64, generator=rng)
    narrow = draw(kind, 200, 500, dtype=torch.float32, generator=rng).double()
    # a few float32 operations on the same bits
    torch.testing.assert_close(narrow, wide, rtol=2e-6, atol=2e-6)


def test_transforms_take_the_same_words_from_a_generator() -> None:
    eager, traced = seeded(8), seeded(8)
    expected = torch.stack([random.uniform((5,), generator=eager) for _ in range(3)])
    drawn = torch.vmap(lambda _: random.uniform((5,), generator=traced), randomness="different")(
        torch.zeros(3)
    )
    assert torch.equal(drawn, expected)
    assert torch.equal(eager.get_state(), traced.get_state())


# ---- sentences -----------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [0, "seed", np.random.default_rng(0), torch.zeros(1)])
def test_wrong_generators_get_a_sentence(bad: object) -> None:
    with pytest.raises(
        ag.InputTypeError, match=r"`gumbel\(generator=...\)` must be a `torch.Generator`"
    ):
        random.gumbel((3,), generator=bad)


@pytest.mark.parametrize("bad", [1.5, "0", None, True, torch.tensor(1)])
def test_wrong_seeds_get_a_sentence(bad: object) -> None:
    with pytest.raises(ag.InputTypeError, match=r"`CounterRNG\(seed=...\)` must be an integer"):
        ag.CounterRNG(bad)
    with pytest.raises(ag.InputTypeError, match=r"`CounterRNG.fold\(ids=...\)` must be an integer"):
        ag.CounterRNG(0).fold(bad)


def test_integer_noise_gets_a_sentence() -> None:
    with pytest.raises(ag.InputTypeError, match=r"`gumbel\(dtype=...\)` must be floating point"):
        random.gumbel((3,), dtype=torch.int64)
