"""k of n: the contract, and what is special: k per row, both ends, high precision, the tilt."""

from __future__ import annotations

import itertools
import math

import mpmath
import pytest
import torch
from torch import Tensor

import argrad as ag
from argrad._errors import InputError
from argrad.solvers import _subset_torch as plain
from argrad.solvers.subset import subset_log_partition, subset_marginals, subset_sample
from family_contract import FamilyCase, FamilyContract, compiled_is_eager


def subsets(n: int, k: int, at_most: bool) -> Tensor:
    bits = itertools.product((0.0, 1.0), repeat=n)
    return torch.tensor(
        [z for z in bits if sum(z) == k or (at_most and sum(z) < k)], dtype=torch.float64
    )


def make(n: int, k: int, at_most: bool = False) -> FamilyCase:
    return FamilyCase(
        f"{k}-of-{n}{'-or-less' if at_most else ''}",
        subsets(n, k, at_most),
        lambda x: subset_log_partition(x, k, at_most=at_most),
        lambda x: subset_marginals(x, k, at_most=at_most),
        lambda x, shape, generator: subset_sample(x, k, shape, at_most=at_most, generator=generator),
        (lambda x: plain.log_partition(x, k, at_most), lambda x: plain.infer(x, k, at_most)[1]),
        lambda x, uniform: plain.sample(x, k, at_most, uniform),
        n,
        closed=(1,) if n > max(k, 1) or at_most else None,
        always_possible=at_most or k == 0,
    )


CASES = [make(1, 0), make(1, 1), make(4, 0), make(4, 4), make(5, 1), make(6, 3), make(6, 5)]
CASES += [make(5, 2, True), make(3, 3, True), make(4, 0, True)]


@pytest.fixture(params=CASES, ids=str)
def case(request: pytest.FixtureRequest) -> FamilyCase:
    return request.param


class TestSubset(FamilyContract):
    pass


def test_compiled(fresh_compiler: None) -> None:
    compiled_is_eager(make(6, 2))


@pytest.mark.slow
@pytest.mark.parametrize("case", [make(6, 2), make(5, 2, True)], ids=str)
def test_inductor(case: FamilyCase, fresh_compiler: None) -> None:
    compiled_is_eager(case, "inductor")


@pytest.mark.parametrize("at_most", [False, True])
def test_one_k_a_row(at_most: bool) -> None:
    scores = torch.randn(2, 4, 6, dtype=torch.float64).requires_grad_()
    k = torch.tensor([0, 1, 4, 6])
    calls = [subset_log_partition, subset_marginals]
    plains = [plain.log_partition, lambda *args: plain.infer(*args)[1]]
    for call, other in zip(calls, plains, strict=True):
        columns = [call(scores[:, i], int(k[i]), at_most=at_most) for i in range(4)]
        found = call(scores, k, at_most=at_most)
        assert torch.allclose(found, torch.stack(columns, 1), atol=1e-14)
        assert torch.allclose(other(scores, k.expand(2, 4), at_most), found, atol=1e-13)
        rows = torch.vmap(
            lambda x, k, call=call: call(x, k, at_most=at_most), in_dims=(1, 0), out_dims=1
        )
        assert torch.allclose(rows(scores, k), found, atol=1e-13)
    assert torch.autograd.gradcheck(lambda x: subset_marginals(x, k, at_most=at_most), scores)
    sizes = subset_sample(scores, k, (30,), at_most=at_most).sum(-1)
    assert bool(((sizes <= k) if at_most else (sizes == k)).all())


def test_same_draws_everywhere() -> None:
    """Kernel and plain torch read the same uniforms in the same way."""
    scores, k = torch.randn(3, 11), torch.tensor([2, 5, 11])
    for at_most in (False, True):
        for size in (k, 4):
            rng = ag.CounterRNG(1)
            kernel = subset_sample(scores, size, (200,), at_most=at_most, generator=rng)
            uniform = ag.random.uniform((200, 3, 11), generator=rng)
            # float32 sums can put a uniform on the other side of a threshold: 1e-7 a draw
            assert torch.equal(plain.sample(scores, size, at_most, uniform), kernel)


def esp(scores: Tensor, k: int) -> tuple[mpmath.mpf, list[mpmath.mpf]]:
    """log e_k and all marginals, by dividing the polynomial by 1 + w x."""
    w = [mpmath.exp(mpmath.mpf(s)) for s in scores.tolist()]
    e = [mpmath.mpf(1)] + [mpmath.mpf(0)] * k
    for x in w:
        for t in range(k, 0, -1):
            e[t] += x * e[t - 1]
    mu = []
    for x in w:
        rest = mpmath.mpf(1)
        for t in range(1, k):
            rest = e[t] - x * rest
        mu.append(x * rest / e[k])
    return mpmath.log(e[k]), mu


@pytest.mark.parametrize("scale", [0.1, 1.0, 10.0, 100.0])
def test_high_precision(scale: float) -> None:
    n, k = 120, 15
    scores = scale * torch.randn(n)
    with mpmath.workdps(1500):  # what the division by 1 + w x cancels
        log_z, mu = esp(scores, k)
        right = torch.tensor([float(x) for x in mu], dtype=torch.float64)
    # scores less the tilt are rounded to 1e-16 * scale, which is then a relative error of each weight
    assert subset_log_partition(scores.double(), k).item() == pytest.approx(float(log_z), rel=1e-14)
    assert torch.allclose(subset_marginals(scores.double(), k), right, rtol=1e-12, atol=1e-140)
    assert torch.allclose(subset_marginals(scores, k).double(), right, rtol=0, atol=6e-8)
    assert torch.allclose(plain.infer(scores, k, False)[1].double(), right, rtol=0, atol=2e-6)
    assert plain.log_partition(scores, k, False).item() == pytest.approx(float(log_z), rel=1e-6)


@pytest.mark.parametrize("scale", [1.0, 10.0, 100.0])
def test_thousand_items(scale: float) -> None:
    """The sequential DP in float32 is off by 1.3e-3 here (scale 10)."""
    scores = scale * torch.randn(4, 1000)
    right = subset_marginals(scores.double(), 100)
    assert torch.allclose(right.sum(-1), torch.tensor(100.0, dtype=torch.float64), rtol=1e-13)
    assert (subset_marginals(scores, 100) - right).abs().max() < 6e-8  # half an ulp of 1
    assert (plain.infer(scores, 100, False)[1] - right).abs().max() < 2e-6  # 10 levels, 1e-7 each
    free = scores.clone().requires_grad_()
    plain.log_partition(free, 100, False).sum().backward()
    assert (free.grad - right).abs().max() < 2e-6


TILTS = {
    "equal": torch.zeros(3, 300),
    "normal": torch.randn(3, 300, generator=torch.Generator().manual_seed(0)),
    "huge": 1e4 * torch.randn(3, 300, generator=torch.Generator().manual_seed(1)),
    "far": 1e5 + torch.randn(3, 300, generator=torch.Generator().manual_seed(2)),
    "gap": torch.cat([torch.zeros(3, 20), torch.full((3, 280), -1000.0)], -1),
    "forbidden": torch.cat([torch.zeros(3, 250), torch.full((3, 50), -math.inf)], -1),
}


@pytest.mark.parametrize("name", TILTS)
@pytest.mark.parametrize("k", [0, 1, 20, 150, 249, 250])
def test_tilt(name: str, k: int) -> None:
    """The tilted mean is within half an item or standard deviation of k: P(S = k) cannot be tiny."""
    x = TILTS[name]
    p = torch.sigmoid(x.double() - plain.tilt(x, k).double())
    deviation = (p * (1 - p)).sum(-1).sqrt()
    assert bool(((p.sum(-1) - k).abs() <= 0.51 + 0.5 * deviation).all())
    right = subset_marginals(x.double(), k)
    assert torch.allclose(plain.infer(x, k, False)[1].double(), right, rtol=0, atol=3e-6)


def test_refuses_sizes() -> None:
    scores = torch.zeros(2, 3)
    with pytest.raises(InputError, match="must be an integer from 0 to 3"):
        subset_log_partition(scores, 4)
    with pytest.raises(InputError, match="must not be negative"):
        subset_log_partition(scores, torch.tensor([1, -1]))
    with pytest.raises(TypeError, match="integer tensor"):
        subset_log_partition(scores, torch.tensor([1.0, 2.0]))
    with pytest.raises(InputError, match="at least k items"):
        subset_marginals(scores, torch.tensor([1, 4]))
    assert subset_log_partition(scores, torch.tensor([1, 4]))[1] == -math.inf
    assert subset_log_partition(scores, 9, at_most=True).exp() == pytest.approx(8)


def test_huge_equal_scores_are_told_apart_from_others() -> None:
    """Beside 1e38 a tilt has no digits left for odds of 2 : 1; a fuzz run found NaN in the steps that are unrolled."""
    scores = torch.tensor([1e38, -1.7, 1e38, 1e38, 1.5], requires_grad=True)
    soft = ag.Subset(2).relax(scores, regularizer=ag.ExponentialFamily(), backward=ag.Unrolled())
    torch.testing.assert_close(soft, torch.tensor([2.0, 0.0, 2.0, 2.0, 0.0]) / 3)
    soft[0].backward()
    expected = (
        torch.tensor([2.0, 0.0, -1.0, -1.0, 0.0]) / 9
    )  # covariances of three equal items, two chosen
    torch.testing.assert_close(scores.grad, expected)
