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

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from argrad._checks import check_allowed, check_scores, is_transformed
from argrad._types import Float
from argrad.solvers.order import Size, gap, kth_largest
from argrad.solvers.root import root
from argrad.solvers.row_kernels import in_front, pull_rows, solve_rows

# From here on a sigmoid is an exponential to the last digit of float64, and t does not depend on d.
_WIDE = 40.0


def fermi(call: str, scores: Float[Tensor, "*batch n"], k: Size) -> Tensor:
    """Eq. (1) with the backward of Eq. (3); `call` is who to name in an error."""
    function = _Fermi if torch.compiler.is_compiling() else _FermiBothWays
    return function.apply(scores, k, call)[0]  # type: ignore[index]


def fermi_unrolled(call: str, scores: Float[Tensor, "*batch n"], k: Size) -> Tensor:
    """Eq. (1), differentiated through its last two Newton steps (right up to the third derivative)."""
    z, rest = _forward(call, scores.detach(), k)
    view = _View.of(scores.detach(), k)
    low, high = _bracket(view, k)
    logit = torch.log(kth_largest(z, k)) - torch.log(-kth_largest(-rest, k))  # of the k-th item
    t = torch.minimum(torch.maximum(view.d - logit, low), high)
    view = view.with_scores(scores)
    for _ in range(2):
        t = t + view.residual(t, view.weight)[1]
    return _bounds(view.centred(t).sigmoid(), scores, k)


def _forward(call: str, scores: Tensor, k: Size) -> tuple[Tensor, Tensor]:
    """The kernel on the CPU, by way of an operator where tensors are traced; else plain torch."""
    if not scores.is_cpu:
        check_scores(call, "scores", scores)
        check_allowed(call, k, scores)
        return solve(scores, k)
    args = (None, k) if isinstance(k, int) else (k, 0)
    return (_operator if is_transformed() else _solve_kernel)(scores, *args, call)


class _View(NamedTuple):
    """Scores seen from the gap between the best k items and the others."""

    y: Tensor  # p - w or w - r: minus the distance from the gap, <= 0
    best: Tensor  # w >= p
    surplus: Tensor  # how many more than k those are; above 0 only if p = r
    d: Tensor  # half the gap

    @property
    def weight(self) -> Tensor:
        """The odds at t = 0, of being left out (best items) or let in (others)."""
        return torch.exp(self.y - self.d.clamp(max=_WIDE))

    @staticmethod
    def of(scores: Tensor, k: Size) -> _View:
        p, r = gap(scores, k)
        r = torch.where(r > -math.inf, r, p)  # all that is allowed is chosen: no gap to look at
        best = scores >= p
        y = torch.where(best, p - scores, scores - r)
        surplus = (best.sum(-1, keepdim=True) - k).clamp(min=0)
        return _View(y, best, surplus.to(y.dtype), 0.5 * (p - r))

    def with_scores(self, scores: Tensor) -> _View:
        """The same view, differentiable in the scores."""
        forbidden = scores == -math.inf
        change = torch.where(forbidden, 0.0, scores) - torch.where(forbidden, 0.0, scores).detach()
        return self._replace(y=self.y + torch.where(self.best, -change, change))

    def centred(self, t: Tensor) -> Tensor:
        """w - nu, from the distances, so that no digits are lost."""
        return torch.where(self.best, (self.d - t) - self.y, self.y - (self.d + t))

    def residual(self, t: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """R - L and the Newton step on log R - log L, Eq. (2)."""
        rise = torch.exp(t)
        odds = weight * torch.where(self.best, rise, 1.0 / rise)
        share = odds / (1.0 + odds)
        s = share / (1.0 + odds)
        lack, hold = _split(share, self.best)
        lack_slope, hold_slope = _split(s, self.best)
        hold = hold + self.surplus
        # 0 means that there are no such items, and that all is decided
        hold, lack = (torch.where(x > 0, x, 1.0) for x in (hold, lack))
        step = torch.log(hold / lack) / (hold_slope / hold + lack_slope / lack)
        value = hold - lack
        noise = 2 * torch.finfo(value.dtype).eps * (hold + lack)
        return torch.where(value.abs() <= noise, 0.0, value), step


def _split(x: Tensor, best: Tensor) -> tuple[Tensor, Tensor]:
    """Sums over the best items and over the others."""
    others = torch.where(best, 0.0, x)
    return torch.where(best, x, 0.0).sum(-1, keepdim=True), others.sum(-1, keepdim=True)


def _bracket(view: _View, k: Size) -> tuple[Tensor, Tensor]:
    """Eq. (2) with some room: a root at an end must not make Newton's step look wrong."""
    n = view.y.shape[-1]
    size = torch.as_tensor(k, device=view.d.device).clamp(1, max(n - 1, 1)).to(view.d.dtype)
    low, high = -1.0 - size.log(), 1.0 + (n - size).clamp(min=1).log()
    return low.expand(view.d.shape), high.expand(view.d.shape)


def solve(scores: Tensor, k: Size) -> tuple[Tensor, Tensor]:
    """Eq. (1) and 1 - z, each to its own relative accuracy; no gradient."""
    view = _View.of(scores, k)
    weight = view.weight
    u = view.centred(root(lambda t: view.residual(t, weight), *_bracket(view, k)))
    z, rest = u.sigmoid(), (-u).sigmoid()
    s = z * rest
    slope = s.sum(-1, keepdim=True)
    lack, hold = _split(torch.where(view.best, rest, z), view.best)
    miss = lack - hold - view.surplus  # k minus the sum of z, without their cancellation
    shift = s * (miss / torch.where(slope > 0, slope, 1.0))
    z = _bounds((z + shift).clamp(0.0, 1.0), scores, k)
    return z, _bounds((rest - shift).clamp(0.0, 1.0), scores, k, complement=True)


def _bounds(z: Tensor, scores: Tensor, k: Size, complement: bool = False) -> Tensor:
    """All 0 where k is 0, all allowed items 1 where k is their number; NaN where that is impossible."""
    allowed = scores > -math.inf
    count = allowed.sum(-1, keepdim=True)
    k = torch.as_tensor(k, device=z.device)
    full = (allowed ^ complement).to(z.dtype)
    z = torch.where(k == count, full, z)
    z = torch.where(k == 0, float(complement), z)
    fine = (scores.amax(-1, keepdim=True) < math.inf) & (k >= 0) & (k <= count)
    return torch.where(fine, z, math.nan)


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
        out = torch.empty(z.shape, dtype=z.dtype)
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
    z, rest = (torch.empty(scores.shape, dtype=scores.dtype) for _ in range(2))
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
