"""The entropy of a softmax: the kernel for short rows, the torch formula elsewhere, and their slopes."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

import argrad as ag
from argrad.solvers.entropy import softmax_entropy


def by_definition(scores: Tensor) -> Tensor:
    p = scores.double().softmax(-1)
    return -torch.special.xlogy(p, p).sum(-1)


@pytest.mark.parametrize("n", [1, 2, 10, 31, 32, 70])
@pytest.mark.parametrize("scale", [1.0, 30.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equals_the_definition(n: int, scale: float, dtype: torch.dtype) -> None:
    scores = scale * torch.randn(3, 67, n, generator=torch.Generator().manual_seed(n)).to(dtype)
    tolerance = 1e-5 if dtype == torch.float32 else 1e-12  # a few roundings of log(70)
    torch.testing.assert_close(
        softmax_entropy(scores).double(), by_definition(scores), rtol=tolerance, atol=tolerance
    )


@pytest.mark.parametrize("n", [5, 40])
def test_slopes_of_first_and_second_order(n: int) -> None:
    scores = torch.randn(2, n, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    scores.requires_grad_()
    assert torch.autograd.gradcheck(softmax_entropy, scores)
    assert torch.autograd.gradgradcheck(softmax_entropy, scores)


@pytest.mark.parametrize("n", [5, 40])
def test_forbidden_items_add_nothing(n: int) -> None:
    scores = torch.randn(4, n, generator=torch.Generator().manual_seed(1))
    scores[:, 2:] = -math.inf
    scores[0, 1] = -math.inf  # one item left: entropy 0
    full = scores.clone().requires_grad_()
    value = softmax_entropy(full)
    (grad,) = torch.autograd.grad(value.sum(), full)
    torch.testing.assert_close(value[1:], softmax_entropy(scores[1:, :2]))
    assert value[0] == 0.0
    assert torch.equal(grad[:, 2:], torch.zeros(4, n - 2)) and bool(grad.isfinite().all())


def test_a_batch_equals_its_rows() -> None:
    scores = torch.randn(131, 9, generator=torch.Generator().manual_seed(2))
    assert torch.equal(softmax_entropy(scores), torch.stack([softmax_entropy(row) for row in scores]))


def test_short_rows_draw_the_same_noise_as_long_ones() -> None:
    """Padding with forbidden items moves a row to the other kernel; only the rounding may change."""
    scores = torch.randn(200, 20, generator=torch.Generator().manual_seed(3))
    padded = torch.cat([scores, torch.full((200, 30), -math.inf)], -1)
    short = ag.gumbel_softmax(scores, generator=torch.Generator().manual_seed(4))
    long = ag.gumbel_softmax(padded, generator=torch.Generator().manual_seed(4))
    torch.testing.assert_close(short, long[:, :20], rtol=1e-5, atol=1e-7)


def test_vmap_and_extreme_scores() -> None:
    scores = torch.tensor([[0.0, 1e4, -1e4], [1e30, 1e30, 1e30]])
    torch.testing.assert_close(ag.OneHot().entropy(scores), torch.tensor([0.0, math.log(3)]))
    assert torch.equal(torch.func.vmap(softmax_entropy)(scores[:1]), softmax_entropy(scores[:1]))
