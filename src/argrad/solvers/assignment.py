r"""Exact assignment: the best permutation, or the best matching of two unequal sides.

The algorithm is in `_kernels/assignment.py` (shortest augmenting paths, compiled, threads over the batch).
For `torch.compile` and `vmap` it is a custom operator; other devices go through the CPU.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import torch
from torch import Tensor

from argrad._checks import bad_values, check_event, check_floating, is_transformed
from argrad._errors import InputError
from argrad._types import Float

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
    check_floating("assignment", "scores", scores)
    check_event("assignment", "scores", scores, 2)
    if type(scores) is Tensor and scores.device.type == "cpu" and not is_transformed():
        return _solve(
            scores.detach(), partial
        )  # the operator's dispatch would cost more than small ones
    return _operator(scores.detach(), partial)


def _solve(scores: Tensor, partial: bool) -> Tensor:
    kernel, run_rows = _kernel()
    shape, dtype = scores.shape, scores.dtype
    x = scores if scores.device.type == "cpu" else scores.cpu()
    x = x if dtype in (torch.float32, torch.float64) else x.float()
    w = np.ascontiguousarray(x.numpy()).reshape(
        -1, *shape[-2:]
    )  # numpy's calls are cheaper than torch's
    chosen, failed = np.zeros(w.shape, w.dtype), np.zeros(w.shape[0], np.uint8)
    status = run_rows(kernel, w.shape[0], 16 * w.size, w, partial, chosen, failed)
    if status & _BAD:
        raise bad_values("assignment", "scores", scores)
    if status:
        raise _infeasible(failed)
    result = torch.from_numpy(chosen.reshape(shape))
    return result if scores.device.type == "cpu" and result.dtype == dtype else result.to(scores)


@functools.cache
def _kernel() -> tuple[Any, Any]:
    from argrad._kernels.assignment import BAD, assignment
    from argrad._kernels.threads import run_rows

    assert BAD == _BAD
    return assignment, run_rows


def _infeasible(failed: np.ndarray) -> InputError:
    count, first = int(failed.sum()), int(failed.argmax())
    where = f"{count} of {len(failed)} matrices (first: {first})" if len(failed) > 1 else "the matrix"
    return InputError(
        f"`assignment(scores=...)` must leave a way to match every row (or column, of the shorter side); "
        f"the -inf pairs (or `mask`) leave none in {where}. Allow more pairs, or pass `partial=True`."
    )


@torch.library.custom_op("argrad::assignment", mutates_args=())
def _operator(scores: Tensor, partial: bool) -> Tensor:
    return _solve(scores, partial)


@_operator.register_fake
def _(scores: Tensor, partial: bool) -> Tensor:
    return torch.empty_like(scores, memory_format=torch.contiguous_format)


@_operator.register_vmap
def _(info: Any, in_dims: tuple[Any, ...], scores: Tensor, partial: bool) -> tuple[Tensor, int]:
    return _operator(scores.movedim(in_dims[0], 0), partial), 0
