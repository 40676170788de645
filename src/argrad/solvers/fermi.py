r"""Choice of k items regularised by binary entropy: sigmoids with one shared threshold.

$$ z = \arg\max_{\sum_i z_i = k} \; \langle w, z \rangle - \sum_i z_i \log z_i + (1 - z_i) \log(1 - z_i)
     = \sigma(w - \nu) \tag{1} $$
(k fermions at energies $-w$; $\nu$ is minus the chemical potential.) Let $p \ge r$ be the k-th and
the (k+1)-th largest score and $d = (p - r)/2$. What the best k items lack must equal what the others hold,
$$ L(t) = \sum_{\text{best } k} \sigma(\nu - w_i) = \sum_{\text{others}} \sigma(w_i - \nu) = R(t),
   \qquad \nu = \frac{p + r}{2} + t, \quad -\log k \le t \le \log(n - k) \tag{2} $$
Both sides are sums of positive terms, small when the choice is nearly hard; solving $\log L = \log R$
keeps their relative accuracy at every temperature. With $s_i = z_i (1 - z_i)$ the Jacobian is
$$ J g = s \circ \Big(g - \frac{\langle s, g \rangle}{\sum_i s_i}\Big) \tag{3} $$
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from argrad._checks import check_allowed, check_scores, is_transformed
from argrad._types import Float
from argrad.solvers._fermi_torch import View, answer_or_nan, bracket, solve
from argrad.solvers._row_kernels import in_front, pull_rows, solve_rows
from argrad.solvers.order import Size, kth_largest


def fermi(call: str, scores: Float[Tensor, "*batch n"], k: Size) -> Tensor:
    """Eq. (1) with the backward of Eq. (3); `call` is who to name in an error."""
    function = _Fermi if torch.compiler.is_compiling() else _FermiBothWays
    return function.apply(scores, k, call)[0]  # type: ignore[index]


def fermi_unrolled(call: str, scores: Float[Tensor, "*batch n"], k: Size) -> Tensor:
    """Eq. (1), differentiated through its last two Newton steps (right up to the third derivative)."""
    z, rest = _forward(call, scores.detach(), k)
    view = View.of(scores.detach(), k)
    low, high = bracket(view, k)
    logit = torch.log(kth_largest(z, k)) - torch.log(-kth_largest(-rest, k))  # of the k-th item
    t = torch.minimum(torch.maximum(view.d - logit, low), high)
    view = view.with_scores(scores)
    for _ in range(2):
        t = t + view.residual(t, view.weight)[1]
    return answer_or_nan(view.centred(t).sigmoid(), scores, k)


def _forward(call: str, scores: Tensor, k: Size) -> tuple[Tensor, Tensor]:
    """The kernel on the CPU, by way of an operator where tensors are traced; else plain torch."""
    if not scores.is_cpu:
        check_scores(call, "scores", scores)
        check_allowed(call, k, scores)
        return solve(scores, k)
    args = (None, k) if isinstance(k, int) else (k, 0)
    return (_operator if is_transformed() else _solve_kernel)(scores, *args, call)


def pull_back(z: Tensor, rest: Tensor, g: Tensor) -> Tensor:
    """Eq. (3); differentiable."""
    s = z * rest
    mass = s.sum(-1, keepdim=True)
    g = torch.where(s > 0, g, 0.0)
    return s * (g - (s * g).sum(-1, keepdim=True) / torch.where(mass > 0, mass, 1.0))


class _Fermi(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(scores: Tensor, k: Size, call: str) -> tuple[Tensor, Tensor]:
        return _forward(call, scores, k)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.save_for_backward(*output)
        ctx.save_for_forward(*output)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, None, None]:
        z, rest = ctx.saved_tensors
        up, down = grads
        g = up if down is None else -down if up is None else up - down
        if g is None:
            return None, None, None
        if torch.is_grad_enabled() or is_transformed() or not z.is_cpu:
            return pull_back(z, rest, g), None, None
        out = torch.empty(z.shape, dtype=z.dtype, device="cpu")
        pull_rows("fermi", z, rest, g, out)
        return out, None, None


class _FermiBothWays(_Fermi):
    """With forward mode too, which `torch.compile` cannot trace (it refuses the class, unused or not)."""

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> tuple[Tensor, Tensor]:
        z, rest = ctx.saved_tensors
        move = pull_back(z, rest, tangents[0])
        return move, -move


# ---- CPU kernel ----------------------------------------------------------------------------------


def _solve_kernel(scores: Tensor, k: Tensor | None, size: int, call: str) -> tuple[Tensor, Tensor]:
    z, rest = (torch.empty(scores.shape, dtype=scores.dtype, device="cpu") for _ in range(2))
    solve_rows("fermi", call, scores, k, size, z, rest)
    return z, rest


_operator = torch.library.custom_op("argrad::fermi", _solve_kernel, mutates_args=())


@_operator.register_fake
def _(scores: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    z, rest = (torch.empty_like(scores, memory_format=torch.contiguous_format) for _ in range(2))
    return z, rest


@_operator.register_vmap
def _(info: Any, in_dims: tuple[Any, ...], *args: Any) -> Any:
    return _operator(*in_front(info.batch_size, in_dims, args)), (0, 0)
