r"""The gradient of a loss over a batch that is too large to hold: exactly that of the whole, a chunk at a time.

$$ \nabla_\theta L(e_1, \dots, e_n) = \sum_c \nabla_\theta \langle e_c(\theta), g_c \rangle, \qquad
   g_c = \frac{\partial L}{\partial e_c} $$
Accumulating the losses of small batches is something else: each item then has few others to be told from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

_C = TypeVar("_C")
Outputs = tuple[Tensor, ...]


def cached_backward(
    encode: Callable[[_C], Outputs],
    chunks: Sequence[_C],
    loss: Callable[[Sequence[Outputs]], Tensor],
    *,
    generators: Sequence[torch.Generator] = (),
    scale: float = 1.0,
) -> Tensor:
    r"""Add the gradient of `loss([encode(c) for c in chunks])` to the parameters; returns the loss, without gradient.

    Every chunk is encoded twice, with the same noise: once for the values that the loss needs, once for the gradient.

    Args:
        encode: a chunk to tensors; what it draws comes from torch's own generators or from `generators`.
        chunks: parts of the batch.
        loss: from the tensors of all chunks to a scalar.
        generators: others that `encode` draws from.
        scale: factor of the gradient, such as that of mixed precision.

    Examples:
        >>> import torch
        >>> w = torch.ones(2, requires_grad=True)
        >>> x = torch.arange(8.0).reshape(4, 2)
        >>> def loss(parts): return torch.cat([e for (e,) in parts]).sum().square()
        >>> cached_backward(lambda c: (c @ w,), x.split(1), loss)
        tensor(784.)
        >>> w.grad                                  # 2 * 28 * column sums
        tensor([672., 896.])

    References: [gao2021b].
    """
    noise = _Noise(generators)
    before, values = [], []
    with torch.no_grad():
        for chunk in chunks:
            before.append(noise.state())
            values.append(encode(chunk))
    leaves = [tuple(v.detach().requires_grad_() for v in outputs) for outputs in values]
    with torch.enable_grad():
        total = loss(leaves)
    wanted = [leaf for outputs in leaves for leaf in outputs]
    gradients = iter(torch.autograd.grad(total * scale, wanted, allow_unused=True))
    after = noise.state()
    for chunk, state in zip(chunks, before, strict=True):
        noise.restore(state)
        outputs = [(v, next(gradients)) for v in encode(chunk)]
        known = [(v, g) for v, g in outputs if g is not None and v.requires_grad]
        torch.autograd.backward([v for v, _ in known], [g for _, g in known])
    noise.restore(after)
    return total.detach()


class _Noise:
    """All generators that a chunk may draw from."""

    def __init__(self, generators: Sequence[torch.Generator]) -> None:
        self._own = tuple(generators)

    def state(self) -> list[Any]:
        devices = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else None
        return [torch.get_rng_state(), devices, [g.get_state() for g in self._own]]

    def restore(self, state: list[Any]) -> None:
        torch.set_rng_state(state[0])
        if state[1] is not None:
            torch.cuda.set_rng_state_all(state[1])
        for generator, own in zip(self._own, state[2], strict=True):
            generator.set_state(own)
