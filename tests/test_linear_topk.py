"""`linear_gumbel_topk`: the draws of `gumbel_topk` without the logits, the log-partition, gradients, sentences."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

import argrad as ag
from argrad.sequences import tiles
from argrad.testing import assert_frequencies, assert_mean

INF = math.inf
FLOATS = [torch.float32, torch.float64]


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def problem(
    rows: int = 6, v: int = 700, d: int = 5, dtype: torch.dtype = torch.float32
) -> tuple[Tensor, Tensor]:
    return torch.randn(rows, d, dtype=dtype), torch.randn(v, d, dtype=dtype)


@pytest.fixture
def small_tiles(monkeypatch):
    """So that rows are cut as well."""
    monkeypatch.setattr(tiles, "TILE", 300)


def close(dtype: torch.dtype) -> dict[str, float]:
    """Log-probabilities of size 20: some ulp of float32, or of float64."""
    return {"rtol": 2e-6, "atol": 5e-6} if dtype == torch.float32 else {"rtol": 1e-13, "atol": 1e-13}


# ---- the draws of gumbel_topk ----------------------------------------------------------------------


@pytest.mark.parametrize("chunk", [7, 64, 256, 699, 700, 10_000])
@pytest.mark.parametrize("dtype", FLOATS)
def test_draws_are_those_of_gumbel_topk_for_any_chunk(
    chunk: int, dtype: torch.dtype, small_tiles
) -> None:
    hidden, weight = problem(dtype=dtype)
    rng = ag.CounterRNG(4)
    top = ag.linear_gumbel_topk(hidden, weight, 5, chunk=chunk, generator=rng)
    logits = hidden @ weight.T
    whole = ag.gumbel_topk(logits, 5, generator=rng)
    assert torch.equal(top.indices, whole.indices)
    assert top.valid.all()
    for name in ("log_prob", "perturbed", "kappa"):
        torch.testing.assert_close(getattr(top, name), getattr(whole, name), **close(dtype))
    exact = logits.double().logsumexp(-1)
    torch.testing.assert_close(top.log_partition.double(), exact, **close(dtype))


def test_a_torch_generator_draws_the_noise_of_gumbel_topk() -> None:
    hidden, weight = problem()
    top = ag.linear_gumbel_topk(hidden, weight, 3, generator=seeded(3))
    assert torch.equal(top.indices, ag.gumbel_topk(hidden @ weight.T, 3, generator=seeded(3)).indices)
    torch.manual_seed(9)
    free = ag.linear_gumbel_topk(hidden, weight, 3)
    torch.manual_seed(9)
    assert torch.equal(free.indices, ag.gumbel_topk(hidden @ weight.T, 3).indices)


def test_rows_in_any_order_and_any_part_draw_the_same() -> None:
    hidden, weight = problem(8)
    rng = ag.CounterRNG(1)
    whole = ag.linear_gumbel_topk(hidden, weight, 4, generator=rng)
    for start in (0, 3, 5):
        part = ag.linear_gumbel_topk(hidden[start:], weight, 4, generator=rng.shift(rows=start))
        assert torch.equal(part.indices, whole.indices[start:])
    columns = ag.linear_gumbel_topk(hidden, weight, 4, generator=rng.shift(columns=11))
    logits = hidden @ weight.T
    assert torch.equal(
        columns.indices, ag.gumbel_topk(logits, 4, generator=rng.shift(columns=11)).indices
    )


def test_threads_do_not_matter(threads) -> None:
    hidden, weight = problem(200, 3000)
    results = []
    for count in (1, 2, 4):
        with threads(count):
            results.append(ag.linear_gumbel_topk(hidden, weight, 6, generator=ag.CounterRNG(2)))
    for other in results[1:]:
        assert torch.equal(results[0].indices, other.indices)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_batch_shapes_and_dtypes(dtype: torch.dtype) -> None:
    weight = torch.randn(50, 4).to(dtype)
    for batch in ((), (3,), (2, 3), (0,), (2, 0)):
        top = ag.linear_gumbel_topk(torch.randn(*batch, 4).to(dtype), weight, 7)
        assert (
            top.indices.shape
            == top.log_prob.shape
            == top.perturbed.shape
            == top.valid.shape
            == (*batch, 7)
        )
        assert top.kappa.shape == top.log_partition.shape == batch
        assert top.indices.dtype == torch.int64
        assert {t.dtype for t in (top.log_prob, top.perturbed, top.kappa, top.log_partition)} == {dtype}


def test_half_precision_is_computed_in_float32() -> None:
    hidden, weight = problem(4, 3000)
    hidden, weight = hidden.bfloat16(), weight.bfloat16()
    top = ag.linear_gumbel_topk(hidden, weight, 5, generator=ag.CounterRNG(0))
    wide = ag.linear_gumbel_topk(hidden.float(), weight.float(), 5, generator=ag.CounterRNG(0))
    assert torch.equal(top.indices, wide.indices)
    assert torch.equal(top.log_prob, wide.log_prob.bfloat16())
    with torch.autocast("cpu", torch.bfloat16):
        cast = ag.linear_gumbel_topk(hidden.float(), weight.float(), 5, generator=ag.CounterRNG(0))
    assert torch.equal(cast.log_prob, wide.log_prob)


# ---- bias, temperature, mask ------------------------------------------------------------------------

EACH = torch.linspace(0.02, 3.0, 6)


@pytest.mark.parametrize(
    "tau", [1.0, 0.3, torch.tensor(0.3), torch.rand(6) + 0.2, torch.rand(6, 1) + 0.2]
)
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("mask_shape", [None, (700,), (1, 700), (6, 700), (6, 1), ()])
def test_bias_temperature_and_mask(tau, with_bias: bool, mask_shape, small_tiles) -> None:
    hidden, weight = problem(dtype=torch.float64)
    bias = torch.randn(700, dtype=torch.float64) if with_bias else None
    mask = None if mask_shape is None else torch.rand(mask_shape) > (0.7 if 700 in mask_shape else -1.0)
    rng = ag.CounterRNG(6)
    top = ag.linear_gumbel_topk(
        hidden, weight, 5, bias=bias, tau=tau, mask=mask, chunk=97, generator=rng
    )
    logits = torch.nn.functional.linear(hidden, weight, bias)
    each = tau.reshape(-1, 1).double() if isinstance(tau, Tensor) else tau
    whole = ag.gumbel_topk(logits / each, 5, mask=mask, generator=rng)
    assert torch.equal(top.indices, whole.indices)
    torch.testing.assert_close(top.log_prob, whole.log_prob, **close(torch.float64))
    torch.testing.assert_close(top.kappa, whole.kappa, **close(torch.float64))


@pytest.mark.parametrize("k", [2, 5, 9])
def test_more_than_there_is_gives_a_valid_mask(k: int) -> None:
    hidden, weight = problem(3, 4)
    mask = torch.tensor([[True, True, False, False], [True] * 4, [False, False, False, True]])
    top = ag.linear_gumbel_topk(hidden, weight, k, mask=mask)
    allowed = mask.sum(-1)
    assert torch.equal(top.valid, torch.arange(k) < allowed[:, None])
    assert (top.log_prob[~top.valid] == -INF).all()
    assert (top.perturbed[~top.valid] == -INF).all()
    assert torch.equal(top.kappa == -INF, allowed <= k)
    for row in range(3):
        drawn = top.indices[row][top.valid[row]]
        assert len(drawn.unique()) == len(drawn)
        assert mask[row][drawn].all()


def test_everything_drawn_sums_to_one() -> None:
    hidden, weight = problem(4, 30, dtype=torch.float64)
    top = ag.linear_gumbel_topk(hidden, weight, 30)
    torch.testing.assert_close(top.log_prob.logsumexp(-1), torch.zeros(4, dtype=torch.float64))
    torch.testing.assert_close(top.weights().sum(-1), torch.ones(4, dtype=torch.float64))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("scale", [0.0, 1.0, 100.0, 3000.0])
def test_far_logits(scale: float, dtype: torch.dtype) -> None:
    """Peaked rows: the threshold is far below the peak, where exponentials underflow."""
    hidden = torch.full((2, 1), scale, dtype=dtype)
    weight = torch.randn(600, 1, dtype=dtype)
    rng = ag.CounterRNG(8)
    logits = hidden @ weight.T
    keys = logits.double() + rng.gumbel(2, 600, dtype=torch.float64)
    for k in (1, 20, 600):
        top = ag.linear_gumbel_topk(hidden, weight, k, chunk=50, generator=rng)
        assert torch.equal(top.indices, keys.topk(k, -1).indices)
        exact = logits.double().log_softmax(-1).gather(-1, top.indices)
        torch.testing.assert_close(top.log_prob.double(), exact, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("shift", [-1e4, 1e5])
def test_a_constant_in_the_logits_costs_no_digits_of_the_noise(shift: float) -> None:
    """Keys are float64, so that only what the product itself lost is lost."""
    bias = torch.full((500,), shift)
    hidden, weight = torch.zeros(3, 2), torch.zeros(500, 2)
    a, b = (
        ag.linear_gumbel_topk(hidden, weight, 4, bias=b, generator=ag.CounterRNG(1))
        for b in (None, bias)
    )
    assert torch.equal(a.indices, b.indices)
    torch.testing.assert_close(a.perturbed, b.perturbed)
    torch.testing.assert_close(a.kappa, b.kappa)


def test_the_filter_never_loses_an_item() -> None:
    """Items are passed over by a bound on their exponential; draw many thresholds and scales."""
    for seed in range(150):
        g = seeded(seed)
        scale = 10 ** torch.empty(4, 1, dtype=torch.float64).uniform_(-2, 2, generator=g)
        weight = torch.randn(400, 1, dtype=torch.float64, generator=g)
        k = int(torch.randint(1, 60, (), generator=g))
        rng = ag.CounterRNG(seed)
        top = ag.linear_gumbel_topk(scale, weight, k, chunk=90, generator=rng)
        keys = scale @ weight.T + rng.gumbel(4, 400, dtype=torch.float64)
        assert torch.equal(top.indices, keys.topk(k, -1).indices), seed


def test_the_bound_of_the_filter() -> None:
    """`_least` is below the exponential of the same bits, for every branch and at both ends."""
    from numba import njit
    from numpy import uint64

    from argrad._kernels import bits, race

    least, exponential = race._least, bits.exponential_64

    @njit
    def worst(count):
        gap = 1e9
        for i in range(count):
            z = bits.splitmix(uint64(i))
            gap = min(gap, exponential(z) - least(z))
        return gap

    # equality at the tangent points, up to the rounding of float32, for which `_ratio` leaves 1e-4
    assert worst(1_000_000) > -3e-7


# ---- the law ----------------------------------------------------------------------------------------


@pytest.mark.statistical
@pytest.mark.parametrize("k", [1, 2, 3])
def test_order_law(k: int) -> None:
    """Against the Plackett-Luce probability of every order."""
    weight = torch.tensor([[0.3], [-1.2], [2.0], [0.0]])
    p = weight[:, 0].double().softmax(0)
    top = ag.linear_gumbel_topk(torch.ones(100_000, 1), weight, k, chunk=3, generator=seeded(1))
    code = (top.indices * 4 ** torch.arange(k)).sum(-1)
    expected = torch.zeros(4**k)
    for order in itertools.permutations(range(4), k):
        left, chance = 1.0, 1.0
        for i in order:
            chance, left = chance * p[i].item() / left, left - p[i].item()
        expected[sum(i * 4**j for j, i in enumerate(order))] = chance
    assert_frequencies(torch.bincount(code, minlength=4**k), expected)


@pytest.mark.statistical
@pytest.mark.parametrize("k", [1, 3])
def test_weights_are_unbiased(k: int) -> None:
    weight = torch.randn(8, 1, dtype=torch.float64)
    top = ag.linear_gumbel_topk(
        torch.ones(100_000, 1, dtype=torch.float64), weight, k, generator=seeded(2)
    )
    w = top.weights()
    p = weight[:, 0].softmax(0)
    f = torch.stack([w.sum(-1), (w * top.indices).sum(-1)], -1)
    assert_mean(f, torch.tensor([1.0, (p * torch.arange(8)).sum().item()]))


def test_weights_of_improbable_items_are_finite() -> None:
    """p / q tends to e^kappa, also where p underflows."""
    phi = torch.tensor([-60.0, -95.0])
    top = ag.sequences.linear.NormalizedTopK(
        torch.arange(2), phi, phi, torch.tensor(-3.0), phi < 0, torch.tensor(0.0)
    )
    torch.testing.assert_close(top.weights(), torch.full((2,), math.exp(-3.0)))


# ---- gradients --------------------------------------------------------------------------------------


def leaves(*shapes: tuple[int, ...]) -> list[Tensor]:
    return [torch.randn(s, dtype=torch.float64, requires_grad=True) for s in shapes]


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("k", [3, 14])
def test_gradients(masked: bool, k: int, small_tiles) -> None:
    hidden, weight, bias = leaves((2, 3, 4), (11, 4), (11,))
    tau = (torch.rand(2, 3, dtype=torch.float64) + 0.5).requires_grad_()
    mask = torch.rand(2, 3, 11) > 0.3 if masked else None

    def outputs(*inputs: Tensor) -> tuple[Tensor, ...]:
        h, w, b, t = inputs
        options = {"bias": b, "tau": t, "mask": mask, "chunk": 4, "generator": ag.CounterRNG(5)}
        top = ag.linear_gumbel_topk(h, w, k, **options)
        drawn = top.log_prob.masked_fill(~top.valid, 0.0), top.perturbed.masked_fill(~top.valid, 0.0)
        return *drawn, top.log_partition

    assert gradcheck(outputs, (hidden, weight, bias, tau))
    assert gradgradcheck(outputs, (hidden, weight, bias, tau))


def test_the_gradient_is_that_of_log_softmax(small_tiles) -> None:
    hidden, weight = (t.float().detach().requires_grad_() for t in leaves((7, 6), (500, 6)))
    rng = ag.CounterRNG(2)
    top = ag.linear_gumbel_topk(hidden, weight, 9, chunk=60, generator=rng)
    upstream = torch.randn(7, 9)
    ours = torch.autograd.grad((top.log_prob * upstream).sum(), (hidden, weight))
    log_p = (hidden @ weight.T).log_softmax(-1).gather(-1, top.indices)
    exact = torch.autograd.grad((log_p * upstream).sum(), (hidden, weight))
    for a, b in zip(ours, exact, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)  # float32 sums in another order
    assert not top.kappa.requires_grad
    assert not top.weights().requires_grad


@pytest.mark.parametrize("wanted", [(0,), (1,), (2,), (3,), (0, 2), (1, 3)])
def test_gradients_of_some_arguments(wanted: tuple[int, ...]) -> None:
    inputs = [t.detach() for t in leaves((3, 4), (9, 4), (9,))] + [
        torch.full((3,), 0.7, dtype=torch.float64)
    ]
    for i in wanted:
        inputs[i].requires_grad_()
    h, w, b, tau = inputs
    top = ag.linear_gumbel_topk(h, w, 2, bias=b, tau=tau, chunk=4, generator=ag.CounterRNG(0))
    grads = torch.autograd.grad(top.log_prob.sum(), [inputs[i] for i in wanted])
    logits = torch.nn.functional.linear(h, w, b) / tau[:, None]
    exact = torch.autograd.grad(
        logits.log_softmax(-1).gather(-1, top.indices).sum(), [inputs[i] for i in wanted]
    )
    for a, c in zip(grads, exact, strict=True):
        torch.testing.assert_close(a, c)


def test_forbidden_items_get_no_gradient_and_no_nan() -> None:
    hidden, weight, _ = leaves((3, 4), (6, 4), (6,))
    bias = torch.tensor([0.0, -INF, 0.0, 0.0, 0.0, 0.0], dtype=torch.float64, requires_grad=True)
    tau = torch.full((3,), 0.5, dtype=torch.float64, requires_grad=True)
    mask = torch.tensor([True, True, False, True, True, True])
    top = ag.linear_gumbel_topk(hidden, weight, 6, bias=bias, tau=tau, mask=mask)
    (top.log_prob[top.valid].sum() + top.log_partition.sum()).backward()
    for leaf in (hidden, weight, bias, tau):
        assert leaf.grad is not None
        assert leaf.grad.isfinite().all()
    assert (weight.grad[1:3] == 0).all()
    assert (bias.grad[1:3] == 0).all()


def test_gradients_of_half_precision_weights() -> None:
    hidden, weight = torch.randn(3, 4).bfloat16(), torch.randn(40, 4).bfloat16().requires_grad_()
    ag.linear_gumbel_topk(hidden, weight, 2).log_prob.sum().backward()
    assert weight.grad is not None
    assert weight.grad.dtype == torch.bfloat16


# ---- memory, transforms, other devices ----------------------------------------------------------------


def test_no_tensor_as_large_as_the_logits_is_made(monkeypatch) -> None:
    """Forwards and backwards, every tile fits into the buffer; the buffer has `TILE` numbers."""
    monkeypatch.setattr(tiles, "TILE", 1 << 12)
    sizes = []
    logits = tiles.Head.logits

    def record(self, rows, columns, buffer):
        sizes.append(buffer.numel())
        return logits(self, rows, columns, buffer)

    monkeypatch.setattr(tiles.Head, "logits", record)
    hidden, weight = (t.requires_grad_() for t in problem(300, 2000))
    ag.linear_gumbel_topk(hidden, weight, 4, chunk=128).log_prob.sum().backward()
    assert len(sizes) == 2 * math.ceil(300 / 32) * math.ceil(2000 / 128)
    assert max(sizes) == 1 << 12


def test_the_torch_path_draws_what_the_kernel_draws(small_tiles) -> None:
    hidden, weight = problem(9, 700)
    head = tiles.Head(hidden, weight, None, None, None, 97)
    words = ag.CounterRNG(3, row=5, column=7).words
    a, b = (f(head, 6, words, 20) for f in (tiles._race_kernel, tiles._race_torch))
    assert torch.equal(a.ids, b.ids)
    assert torch.equal(a.scores, b.scores)
    torch.testing.assert_close(a.keys.float(), b.keys, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(a.log_z.float(), b.log_z, rtol=1e-6, atol=1e-6)
    assert not b.bad


def test_torch_path_with_fewer_items_than_asked_for() -> None:
    hidden, weight = problem(2, 3)
    head = tiles.Head(hidden, weight, None, None, torch.tensor([[True, False, True]]), 2)
    found = tiles._race_torch(head, 5, ag.CounterRNG(0).words, 0)
    assert found.keys.shape == (2, 5)
    assert ((found.ids >= 0).sum(-1) == 2).all()
    assert tiles._race_torch(head._replace(hidden=hidden * math.nan), 2, ag.CounterRNG(0).words, 0).bad


def test_meta_tensors() -> None:
    top = ag.linear_gumbel_topk(torch.empty(5, 3, device="meta"), torch.empty(100, 3, device="meta"), 4)
    assert top.indices.shape == (5, 4)
    assert top.indices.device.type == "meta"


def test_vmap_and_func_grad() -> None:
    hidden, weight = problem(4, 60, dtype=torch.float64)
    rng = ag.CounterRNG(0)
    each = torch.stack([ag.linear_gumbel_topk(h, weight, 3, generator=rng).indices for h in hidden])
    mapped = torch.vmap(lambda h: ag.linear_gumbel_topk(h, weight, 3, generator=rng).indices)(hidden)
    assert torch.equal(each, mapped)
    different = torch.vmap(
        lambda h: ag.linear_gumbel_topk(h, weight, 70).log_prob, randomness="different"
    )(hidden)
    assert different.shape == (4, 70)
    assert (different == -INF).sum() == 40

    def total(h: Tensor) -> Tensor:
        return ag.linear_gumbel_topk(h, weight, 3, generator=rng).log_prob.sum()

    grad = torch.func.grad(total)(hidden)
    h = hidden.clone().requires_grad_()
    torch.testing.assert_close(grad, torch.autograd.grad(total(h), h)[0])


def test_compiled_code_draws_the_same(fresh_compiler) -> None:
    hidden, weight = problem(4, 500)
    rng = ag.CounterRNG(5)

    def draw(h: Tensor, w: Tensor):
        return ag.linear_gumbel_topk(h, w, 3, chunk=200, generator=rng)

    eager, compiled = draw(hidden, weight), torch.compile(draw, backend="aot_eager", fullgraph=True)
    assert torch.equal(eager.indices, compiled(hidden, weight).indices)
    h = hidden.clone().requires_grad_()
    grads = [torch.autograd.grad(f(h, weight).log_prob.sum(), h)[0] for f in (draw, compiled)]
    torch.testing.assert_close(*grads, rtol=1e-4, atol=1e-5)  # float32 sums in another order


# ---- sentences ----------------------------------------------------------------------------------------

HIDDEN, WEIGHT = torch.zeros(2, 3), torch.zeros(5, 3)
NAN = torch.tensor(math.nan)


@pytest.mark.parametrize(
    ("arguments", "options", "sentence"),
    [
        (
            (HIDDEN, WEIGHT, 0),
            {},
            r"`linear_gumbel_topk\(k=...\)` must be an integer of at least 1; got 0",
        ),
        ((HIDDEN, WEIGHT, 1.5), {}, "must be an integer of at least 1; got 1.5"),
        (
            (HIDDEN, WEIGHT.T, 1),
            {},
            r"as many columns as `hidden` has numbers a row, 3; got shape \(3, 5\)",
        ),
        ((HIDDEN, WEIGHT[0], 1), {}, r"must have shape \(v, d\); got shape \(3,\)"),
        ((HIDDEN, WEIGHT[:0], 1), {}, "must offer at least one item"),
        ((torch.zeros(()), WEIGHT, 1), {}, "must have at least 1 dimension"),
        ((HIDDEN.long(), WEIGHT, 1), {}, "`linear_gumbel_topk.hidden=....` must be floating point"),
        ((HIDDEN, "W", 1), {}, r"weight=...\)` must be a tensor; got str"),
        (
            (HIDDEN, WEIGHT, 1),
            {"bias": torch.zeros(4)},
            r"one number an item, shape \(5,\); got shape \(4,\)",
        ),
        (
            (HIDDEN, WEIGHT, 1),
            {"mask": torch.ones(3, 5) > 0},
            r"must broadcast to the scores' shape \(2, 5\)",
        ),
        ((HIDDEN, WEIGHT, 1), {"mask": torch.zeros(2, 5) > 0}, "remove every choice in 2 of 2 rows"),
        ((HIDDEN, WEIGHT, 1), {"tau": 0.0}, "must be positive and finite; got 0.0"),
        ((HIDDEN, WEIGHT, 1), {"chunk": 0}, "chunk=.* must be an integer of at least 1; got 0"),
        ((HIDDEN, WEIGHT, 1), {"generator": 3}, "must be a `torch.Generator`"),
        ((HIDDEN, WEIGHT, 1), {"group": 4}, r"group=...\)` must be a process group; got int"),
        ((HIDDEN + NAN, WEIGHT, 1), {}, r"`linear_gumbel_topk\(hidden=...\)` must not hold NaN"),
        ((HIDDEN, WEIGHT / 0, 1), {}, r"`linear_gumbel_topk\(weight=...\)` must not hold NaN"),
        (
            (HIDDEN, WEIGHT, 1),
            {"bias": torch.full((5,), INF)},
            r"bias=...\)` must not hold NaN or \+inf",
        ),
        ((HIDDEN + 1e30, WEIGHT + 1e30, 1), {}, "their product overflows"),
    ],
)
def test_sentences(arguments, options, sentence: str) -> None:
    with pytest.raises((ag.InputError, ag.InputTypeError), match=sentence):
        ag.linear_gumbel_topk(*arguments, **options)


def test_weights_whose_sums_overflow_are_a_sentence_where_there_is_a_gradient() -> None:
    """A fuzz run found a NaN in the gradient: inf - inf."""
    hidden, weight = torch.zeros(2, 3, requires_grad=True), torch.full((5, 3), -1e38)
    with pytest.raises(ag.InputError, match=r"must leave room for its own sums.* up to 1e\+38"):
        ag.linear_gumbel_topk(hidden, weight, 2)
    assert ag.linear_gumbel_topk(hidden.detach(), weight, 2).indices.shape == (2, 2)
    wide = ag.linear_gumbel_topk(hidden.double(), weight.double(), 2)
    wide.log_prob.sum().backward()
    assert hidden.grad is not None and hidden.grad.isfinite().all()
