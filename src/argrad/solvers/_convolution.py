r"""Convolution of many short vectors, and its transpose.

By products and sums in the order of the indices: sums of positive numbers stay accurate to rounding in
each entry, which a Fourier transform (error relative to the largest entry) and a matrix product (TF32 on
some accelerators) do not promise. The derivatives are written in terms of the same two functions, so
that nothing of the size of a window matrix is kept for the backward pass.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from argrad._types import Float


def convolve(
    a: Float[Tensor, "*batch p"], b: Float[Tensor, "*batch q"], size: int
) -> Float[Tensor, "*batch size"]:
    r"""$(a * b)_t = \sum_i a_{t-i} b_i$ for $t <$ `size`."""
    if torch.compiler.is_compiling():  # the compiler decides itself what to keep
        return _Convolve.forward(a, b, size)
    return _Convolve.apply(a, b, size)


def correlate(
    g: Float[Tensor, "*batch p"], b: Float[Tensor, "*batch q"], size: int
) -> Float[Tensor, "*batch size"]:
    r"""$(g \star b)_j = \sum_i g_{i+j} b_i$ for $j <$ `size`: the transpose of `convolve` in its first argument."""
    if torch.compiler.is_compiling():
        return _Correlate.forward(g, b, size)
    return _Correlate.apply(g, b, size)


def _slide(x: Tensor, weights: Tensor) -> Tensor:
    return (x.unfold(-1, weights.shape[-1], 1) * weights[..., None, :]).sum(-1)


class _Convolve(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(a: Tensor, b: Tensor, size: int) -> Tensor:
        return _slide(functional.pad(a, (b.shape[-1] - 1, size - a.shape[-1])), b.flip(-1))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Tensor) -> None:
        ctx.size = inputs[2]
        ctx.save_for_backward(*inputs[:2])
        ctx.save_for_forward(*inputs[:2])

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple:
        (a, b), (g,) = ctx.saved_tensors, grads
        return correlate(g, b, a.shape[-1]), correlate(g, a, b.shape[-1]), None

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor:
        (a, b), (d_a, d_b, _) = ctx.saved_tensors, tangents
        return convolve(d_a, b, ctx.size) + convolve(a, d_b, ctx.size)


class _Correlate(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(g: Tensor, b: Tensor, size: int) -> Tensor:
        return _slide(functional.pad(g, (0, size + b.shape[-1] - 1 - g.shape[-1])), b)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Tensor) -> None:
        ctx.size = inputs[2]
        ctx.save_for_backward(*inputs[:2])
        ctx.save_for_forward(*inputs[:2])

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple:
        (g, b), (u,) = ctx.saved_tensors, grads
        return convolve(u, b, g.shape[-1]), correlate(g, u, b.shape[-1]), None

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor:
        (g, b), (d_g, d_b, _) = ctx.saved_tensors, tangents
        return correlate(d_g, b, ctx.size) + correlate(g, d_b, ctx.size)
