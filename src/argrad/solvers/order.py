r"""Order statistics, with k an int or a tensor (a k for each row)."""

from __future__ import annotations

from torch import Tensor

from argrad._types import Float, Int

Size = int | Tensor  # k: an int, or int64 of shape (*batch, 1)


def kth_largest(
    scores: Float[Tensor, "*batch n"], k: int | Int[Tensor, "*batch 1"]
) -> Float[Tensor, "*batch 1"]:
    """The k-th largest item of each row; k is taken as the nearest of 1, ..., n.

    Examples:
        >>> import torch
        >>> kth_largest(torch.tensor([[3.0, 1.0, 2.0], [3.0, 1.0, 2.0]]), torch.tensor([[1], [3]]))
        tensor([[3.],
                [1.]])
    """
    n = scores.shape[-1]
    if isinstance(k, Tensor):
        return _pick(scores.sort(-1, descending=True).values, k)
    k = min(max(k, 1), n)
    if k == 1:
        return scores.amax(-1, keepdim=True)
    return scores.topk(k, -1, sorted=False).values.amin(-1, keepdim=True)


def gap(
    scores: Float[Tensor, "*batch n"], k: int | Int[Tensor, "*batch 1"]
) -> tuple[Float[Tensor, "*batch 1"], Float[Tensor, "*batch 1"]]:
    """The k-th and the (k+1)-th largest item of each row, k as in `kth_largest`."""
    n = scores.shape[-1]
    if isinstance(k, Tensor):
        order = scores.sort(-1, descending=True).values
        return _pick(order, k), _pick(order, k + 1)
    k = min(max(k, 1), n)
    best = scores.topk(min(k + 1, n), -1).values
    return best[..., k - 1 : k], best[..., min(k, n - 1) : k + 1]


def _pick(order: Tensor, k: Tensor) -> Tensor:
    index = (k - 1).clamp(0, order.shape[-1] - 1).expand(*order.shape[:-1], 1)
    return order.gather(-1, index)
