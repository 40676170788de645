r"""$\log Z$ and marginals of `arcs` (see `_rooted`), in the fastest arithmetic that is right.

On the CPU a kernel eliminates in scaled float64; the few graphs whose range exceeds float64 are done again
in the log domain, as is everything on other devices and under transforms. Derivatives of the kernel:
$\nabla \log Z = \mu$, and the derivative of $\mu$ is the Hessian of $\log Z$, a symmetric matrix, so that its
product with a vector is both the forward and the backward derivative.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from argrad._checks import can_read, is_transformed, no_tree_allowed
from argrad._kernels.threads import run_rows
from argrad._types import Float
from argrad.solvers import _star_mesh_torch as star_mesh
from argrad.solvers._rooted import graphs_of


def log_partition(arcs: Float[Tensor, "*batch m1 m"], single: bool) -> Float[Tensor, "*batch"]:
    """`-inf` with gradient 0 where there is no tree."""
    if arcs.shape[-1] == 0:  # one node: one tree, without arcs
        return arcs.new_full(arcs.shape[:-2], -math.inf if single else 0.0)
    if _use_kernel(arcs):
        return _Sums.apply(arcs, single)[0]
    return star_mesh.eliminate(arcs, single)[0]


def marginals(
    call: str, arcs: Float[Tensor, "*batch m1 m"], single: bool
) -> Float[Tensor, "*batch m1 m"]:
    """Where there is no tree: a sentence, or NaN if values cannot be read."""
    if arcs.shape[-1] == 0:
        log_z, mu = log_partition(arcs, single), torch.zeros_like(arcs)
    elif _use_kernel(arcs):
        log_z, mu = _Sums.apply(arcs, single)
    else:
        log_z, mu = _log_domain(arcs, single)
    none = log_z == -math.inf
    if not can_read(none):
        return mu.masked_fill(none[..., None, None], math.nan)
    if bool(none.any()):
        raise no_tree_allowed(call, none)
    return mu


def _use_kernel(arcs: Tensor) -> bool:
    return arcs.device.type == "cpu" and not is_transformed()


# ---- log domain ----------------------------------------------------------------------------------


def _log_domain(arcs: Tensor, single: bool) -> tuple[Tensor, Tensor]:
    """log Z and marginals, which are 0 where there is no tree."""
    log_z, stages = star_mesh.eliminate(arcs, single)
    none = (log_z == -math.inf)[..., None, None]
    return log_z, star_mesh.marginals(stages, single).masked_fill(none, 0.0)


def _log_domain_hessian(arcs: Tensor, direction: Tensor, single: bool) -> Tensor:
    return torch.func.vjp(lambda x: _log_domain(x, single)[1], arcs)[1](direction)[0]


# ---- scaled float64: never reached inside a transform, so no vmap rules ---------------------------


class _Sums(torch.autograd.Function):
    """(log Z, marginals), the latter 0 where there is no tree."""

    @staticmethod
    def forward(arcs: Tensor, single: bool) -> tuple[Tensor, Tensor]:
        from argrad._kernels.star_mesh import marginals

        graphs = graphs_of(arcs)
        log_z, ok = _empty(graphs, torch.float64), _empty(graphs, torch.bool)
        mu = torch.empty_like(graphs)
        _run(marginals, graphs, single, log_z, mu, ok)
        if not ok.all():
            log_z[~ok], again = _log_domain(graphs[~ok].double(), single)
            mu[~ok] = again.to(mu.dtype)
        return log_z.to(arcs.dtype).reshape(arcs.shape[:-2]), mu.reshape(arcs.shape)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.single = inputs[1]
        ctx.save_for_backward(inputs[0], output[1])
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(  # type: ignore[override]
        ctx: Any, grad_log_z: Tensor | None, grad_mu: Tensor | None
    ) -> tuple[Tensor | None, None]:
        arcs, mu = ctx.saved_tensors
        grad = None if grad_log_z is None else grad_log_z[..., None, None] * mu
        if grad_mu is not None:
            product = _hessian_product(arcs, grad_mu, ctx.single)
            grad = product if grad is None else grad + product
        return grad, None


def _hessian_product(arcs: Tensor, direction: Tensor, single: bool) -> Tensor:
    if _use_kernel(arcs):
        return _HessianProduct.apply(arcs, direction, single)
    return _log_domain_hessian(arcs, direction, single)


class _HessianProduct(torch.autograd.Function):
    """The Hessian of log Z times a direction."""

    @staticmethod
    def forward(arcs: Tensor, direction: Tensor, single: bool) -> Tensor:
        from argrad._kernels.star_mesh_tangent import hessian_product

        graphs, directions = graphs_of(arcs), graphs_of(direction)
        out, ok = torch.empty_like(graphs), _empty(graphs, torch.bool)
        _run(hessian_product, graphs, directions, single, out, ok)
        if not ok.all():
            again = _log_domain_hessian(graphs[~ok].double(), directions[~ok].double(), single)
            out[~ok] = again.to(out.dtype)
        return out.reshape(arcs.shape)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.single = inputs[2]
        ctx.save_for_backward(inputs[0], inputs[1])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        """Third derivatives, seldom asked for, come from the log domain."""
        arcs, direction = ctx.saved_tensors
        grad_arcs = grad_direction = None
        if ctx.needs_input_grad[0]:
            pull = torch.func.vjp(lambda x: _log_domain_hessian(x, direction, ctx.single), arcs)[1]
            grad_arcs = pull(grad)[0]
        if ctx.needs_input_grad[1]:
            grad_direction = _hessian_product(arcs, grad, ctx.single)
        return grad_arcs, grad_direction, None


def _empty(graphs: Tensor, dtype: torch.dtype) -> Tensor:
    return torch.empty(len(graphs), dtype=dtype, device="cpu")


def _run(kernel: Callable[..., int], graphs: Tensor, *args: object) -> None:
    """The kernel over all graphs; one costs about m^3."""
    arrays = [x.numpy() if isinstance(x, Tensor) else x for x in (graphs, *args)]
    run_rows(kernel, len(graphs), graphs.numel() * graphs.shape[-1], *arrays)
