"""Relaxed rankings: the published formulas, removal of items, limits, derivatives."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from argrad._errors import InputError, InputTypeError
from argrad.solvers.softsort import neuralsort, softsort, sort_permutation

RELAXATIONS = [softsort, neuralsort]


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_sort_permutation_sorts() -> None:
    s = normal(4, 3, 7)
    P = sort_permutation(s)
    assert torch.equal((P @ s[..., None])[..., 0], s.sort(-1, descending=True).values)
    assert bool((P.sum(-1) == 1).all()) and bool((P.sum(-2) == 1).all())
    ties = torch.tensor([1.0, 2.0, 2.0, 1.0])
    assert sort_permutation(ties).argmax(-1).tolist() == [1, 2, 0, 3]
    assert not sort_permutation(s.requires_grad_()).requires_grad


def test_softsort_is_its_formula() -> None:
    s, tau = normal(5), 0.7
    falling = sorted(s.tolist(), reverse=True)
    for row, value in zip(softsort(s, tau), falling, strict=True):
        weights = [math.exp(-abs(value - x) / tau) for x in s.tolist()]
        assert row.tolist() == pytest.approx([x / sum(weights) for x in weights], rel=1e-12)


def test_neuralsort_is_its_formula() -> None:
    s, tau, n = normal(5), 0.7, 5
    x = s.tolist()
    for i, row in enumerate(neuralsort(s, tau), start=1):
        values = [((n + 1 - 2 * i) * a - sum(abs(a - b) for b in x)) / tau for a in x]
        weights = [math.exp(v - max(values)) for v in values]
        assert row.tolist() == pytest.approx([u / sum(weights) for u in weights], rel=1e-12)


@pytest.mark.parametrize("f", RELAXATIONS)
def test_limits_and_row_maxima(f: Callable[..., Tensor]) -> None:
    s = normal(20, 6)
    hard = sort_permutation(s)
    for tau in (0.1, 1.0, 10.0):
        P = f(s, tau)
        assert torch.allclose(P.sum(-1), torch.ones(20, 6, dtype=torch.float64))
        assert torch.equal(P.argmax(-1), hard.argmax(-1))  # at every temperature
    assert torch.allclose(
        f(s, 1e-6), hard, atol=1e-6
    )  # the smallest gap of these draws is far above 1e-5
    assert torch.allclose(f(s, 1e9), torch.full_like(hard, 1 / 6), atol=1e-7)


@pytest.mark.parametrize("f", RELAXATIONS)
def test_minus_infinity_is_removal(f: Callable[..., Tensor]) -> None:
    s = normal(6)
    s[1] = s[4] = -math.inf
    s.requires_grad_()
    P = f(s, 0.5)
    kept = [0, 2, 3, 5]
    assert torch.allclose(P[:4][:, kept], f(s.detach()[kept], 0.5), atol=1e-15)
    assert bool((P[:4][:, [1, 4]] == 0).all()) and bool((P[4:][:, kept] == 0).all())
    assert torch.allclose(P[4:][:, [1, 4]], torch.full((2, 2), 0.5, dtype=torch.float64))
    (grad,) = torch.autograd.grad((P * normal(6, 6, seed=1)).sum(), s)
    assert bool(grad.isfinite().all()) and bool((grad[[1, 4]] == 0).all())
    assert torch.allclose(f(torch.full((3,), -math.inf)), torch.full((3, 3), 1 / 3))


@pytest.mark.parametrize("f", RELAXATIONS)
def test_gradcheck(f: Callable[..., Tensor]) -> None:
    s, tau = normal(3, 4).requires_grad_(), torch.tensor(0.8, dtype=torch.float64, requires_grad=True)
    assert gradcheck(f, (s, tau))
    assert gradgradcheck(f, (s, tau))


@pytest.mark.parametrize("f", RELAXATIONS)
def test_batch_is_loop_is_vmap_is_compile(f: Callable[..., Tensor]) -> None:
    torch._dynamo.reset()
    s = normal(3, 2, 5)
    loop = torch.stack([torch.stack([f(x) for x in row]) for row in s])
    assert torch.allclose(f(s), loop, atol=1e-15)
    assert torch.allclose(torch.vmap(f)(s), loop, atol=1e-15)
    compiled = torch.compile(f, fullgraph=True, backend="aot_eager")
    assert torch.allclose(compiled(s), loop, atol=1e-15)
    tau = torch.tensor([[0.5, 1.0], [2.0, 0.1], [1.0, 3.0]], dtype=torch.float64)
    assert torch.allclose(f(s, tau)[1, 1], f(s[1, 1], 0.1), atol=1e-15)
    hard = torch.vmap(sort_permutation)(s)
    assert torch.equal(hard, sort_permutation(s))


@pytest.mark.parametrize("f", [*RELAXATIONS, sort_permutation])
def test_dtypes_and_sizes(f: Callable[..., Tensor]) -> None:
    s = normal(4, 5).bfloat16()
    assert torch.equal(f(s), f(s.float()).bfloat16())
    assert torch.equal(f(torch.tensor([3.0])), torch.ones(1, 1))
    assert f(torch.empty(0, 4)).shape == (0, 4, 4)


def test_wrong_input_gets_a_sentence() -> None:
    with pytest.raises(InputError, match=r"`softsort\(tau=...\)` must be positive"):
        softsort(torch.zeros(3), 0.0)
    with pytest.raises(InputError, match=r"`neuralsort\(scores=...\)` must not hold NaN"):
        neuralsort(torch.tensor([0.0, math.nan]))
    with pytest.raises(InputError, match="at least one item"):
        sort_permutation(torch.zeros(2, 0))
    with pytest.raises(InputTypeError, match="floating point"):
        softsort(torch.arange(3))
