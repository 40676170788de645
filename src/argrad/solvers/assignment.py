r"""Exact assignment: the best permutation, or the best matching of two unequal sides.

The algorithm is in `_kernels/assignment.py` (shortest augmenting paths, compiled, threads over the batch).
For `torch.compile` and `vmap` it is a custom operator; other devices go through the CPU.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from argrad._checks import bad_values, check_event, check_floating, is_transformed
from argrad._errors import InputError
from argrad._types import Float

_DTYPES = (torch.float32, torch.float64)  # that the kernels read
_SMALL = 4096  # entries; fewer are never worth a second thread
_BAD = 1  # the kernel's status bit for NaN or +inf


def assignment(
    scores: Float[Tensor, "*batch n m"], *, partial: bool = False
) -> Float[Tensor, "*batch n m"]:
    r"""The matching of largest total score, as a 0/1 matrix.

    $$ Z^\star = \arg\max_{Z \in \{0, 1\}^{n \times m}} \langle w, Z\rangle \quad\text{s.t.}\quad
       Z 1 \le 1,\ Z^\top 1 \le 1,\ \textstyle\sum Z = \min(n, m) \tag{1} $$
    With `partial` the last condition is dropped: only pairs that add to the total are taken. $O(k^2 l)$
    for sides $k \le l$, usually far less; float64 inside. Among ties the answer is deterministic.

    Args:
        scores: $w$; -inf forbids a pair.
        partial: leave rows and columns unmatched where no pair of positive score serves them.

    Returns:
        $Z^\star$ in the dtype of `scores`, without gradient. Row $i$ has its 1 at the item for place $i$.

    Examples:
        >>> import torch
        >>> w = torch.tensor([[2.0, 1.9], [1.0, -3.0]])
        >>> assignment(w)
        tensor([[0., 1.],
                [1., 0.]])
        >>> assignment(torch.tensor([[2.0, 1.0], [1.5, -3.0]]), partial=True)
        tensor([[0., 1.],
                [1., 0.]])
        >>> assignment(torch.tensor([[2.0, -1.0], [-1.0, -3.0]]), partial=True)
        tensor([[1., 0.],
                [0., 0.]])

    References: [kuhn1955], [jonker1987].
    """
    if type(scores) is Tensor and not is_transformed() and _is_plain(scores):
        return _solve(scores, partial, scores)  # checks and the operator's dispatch would take longer
    check_floating("assignment", "scores", scores)
    check_event("assignment", "scores", scores, 2)
    return _operator(scores.detach(), partial)


def _is_plain(x: Tensor) -> bool:
    """Whether a kernel can read `x` as it lies in memory, and there is something to choose."""
    readable = x.is_cpu and x.dtype in _DTYPES and x.is_contiguous() and not x.is_neg()
    return readable and x.dim() > 1 and x.numel() > 0


def _solve(scores: Tensor, partial: bool, given: Tensor) -> Tensor:
    """Of a plain tensor; `given` is what the user passed, for messages."""
    kernel, run_rows = _kernel(scores.dtype)
    shape, size = scores.shape, scores.numel()
    n, m = shape[-2], shape[-1]
    chosen = torch.empty_like(scores)
    rows, args = size // (n * m), (scores.data_ptr(), partial, chosen.data_ptr(), n, m)
    status = kernel(0, rows, *args) if size < _SMALL else run_rows(kernel, rows, 16 * size, *args)
    if status & _BAD:
        raise bad_values("assignment", "scores", given)
    if status:
        raise _infeasible(chosen[..., 0, 0].isnan())
    return chosen


@functools.cache
def _kernel(dtype: torch.dtype) -> tuple[Any, Any]:
    from argrad._kernels.assignment import BAD, assignment_32, assignment_64
    from argrad._kernels.threads import run_rows

    assert BAD == _BAD
    return assignment_32 if dtype == torch.float32 else assignment_64, run_rows


def _infeasible(failed: Tensor) -> InputError:
    failed = failed.reshape(-1)
    count, first = int(failed.sum()), int(failed.nonzero()[0])
    where = f"{count} of {len(failed)} matrices (first: {first})" if len(failed) > 1 else "the matrix"
    return InputError(
        f"`assignment(scores=...)` must leave a way to match every row (or column, of the shorter side); "
        f"the -inf pairs (or `mask`) leave none in {where}. Allow more pairs, or pass `partial=True`."
    )


@torch.library.custom_op("argrad::assignment", mutates_args=())
def _operator(scores: Tensor, partial: bool) -> Tensor:
    x = scores.cpu().resolve_neg().contiguous()
    x = x if x.dtype in _DTYPES else x.float()
    return torch.empty_like(scores) if x.numel() == 0 else _solve(x, partial, scores).to(scores)


@_operator.register_fake
def _(scores: Tensor, partial: bool) -> Tensor:
    return torch.empty_like(scores, memory_format=torch.contiguous_format)


@_operator.register_vmap
def _(info: Any, in_dims: tuple[Any, ...], scores: Tensor, partial: bool) -> tuple[Tensor, int]:
    return _operator(scores.movedim(in_dims[0], 0), partial), 0
