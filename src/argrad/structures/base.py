r"""The one base class of all structures: a finite set $Z$ of 0/1 vectors and every question about it.

scores theta  ->  argmax_{z in Z} <theta, z>                      choose
                  argmax_{z in conv Z} <theta, z> - tau f(z)      relax
                  A(theta) = log sum_z exp <theta, z>             log_partition
                  grad A = E z,   A - <theta, grad A>             marginals, entropy
                  exp(<theta, z> - A)                             sample, log_prob
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import ClassVar, NoReturn

import torch
from torch import Tensor

from argrad import random
from argrad._checks import (
    can_read,
    check_event,
    check_floating,
    check_mask,
    check_possible,
    check_quotient,
    check_scores,
    check_shape,
    check_tau,
    fail,
    nothing_offered,
)
from argrad._errors import InputError, UnsupportedError
from argrad._numerics import compute_dtype, masked_scores
from argrad._types import Bool, Float, Generator, Shape, Tau
from argrad.backward import Backward, FiniteDifference, Implicit, Unrolled, finite_difference
from argrad.noise import Gumbel, Noise
from argrad.regularizers import ExponentialFamily, Regularizer, SuccessiveSoftmax

Solver = Callable[[Tensor], Tensor]
Solvers = tuple[Solver, Solver | None]
Relaxations = Mapping[type[Regularizer], Callable[..., Solvers]]


class Structure(ABC):
    """A set of discrete objects, encoded as 0/1 vectors of the shape of their scores.

    Frozen, hashable, without parameters. Public methods check their input, apply the mask (a
    forbidden part is a score of `-inf`), compute half and bfloat16 in float32, and call the private
    method of the same name on clean scores; a concrete structure writes only those.

    Examples:
        >>> import torch, argrad as ag
        >>> for structure in (ag.OneHot(), ag.Subset(2), ag.Bits()):  # the same questions for each
        ...     print(structure.count((4,)), structure.argmax(torch.tensor([1.0, -1.0, 2.0, 0.5])).tolist())
        4 [0.0, 0.0, 1.0, 0.0]
        6 [1.0, 0.0, 1.0, 0.0]
        16 [1.0, 0.0, 1.0, 1.0]
    """

    # ==== must define =============================================================================

    event_dims: ClassVar[int]
    """How many trailing dimensions of the scores are one object."""

    @abstractmethod
    def _argmax(self, scores: Tensor) -> Tensor:
        """The best vertex, shape and dtype of `scores`; lowest index on ties."""

    @abstractmethod
    def contains(self, z: Tensor) -> Bool[Tensor, "*batch"]:
        """Whether each item of `z` is a vertex, shape of the batch."""

    @abstractmethod
    def count(self, event_shape: Shape) -> int:
        """How many vertices there are."""

    @abstractmethod
    def _enumerate(self, event_shape: torch.Size) -> Tensor:
        """All vertices, shape `(count, *event_shape)`, on the CPU."""

    # ==== may define ==============================================================================

    inner_weight: ClassVar[float] = 1.0
    """What a part counts in <theta, z>: 1/2 where an undirected edge stands twice in the matrix."""

    natural_noise: ClassVar[Noise] = Gumbel()
    default_regularizer: ClassVar[Regularizer] = ExponentialFamily()

    argmax_checks_values: ClassVar[bool] = False
    """Whether `_argmax` takes any dtype and itself refuses NaN, +inf and scores that leave nothing."""

    def _relaxations(self, tau: Tau) -> Relaxations:
        """Regularizer class -> function of the regularizer that gives (implicit, unrolled) solvers.

        The solvers take scores that are *not yet divided* by `tau`; None where nothing can be unrolled.
        """
        return {}

    def _log_partition(self, scores: Tensor) -> Tensor:
        self._refuse("log_partition")

    def _marginals(self, scores: Tensor) -> Tensor:
        self._refuse("marginals")

    def _entropy(self, scores: Tensor) -> Tensor:
        result = self._log_partition(scores) - self._inner(scores, self._marginals(scores))
        return result.clamp(min=0)  # rounding must not make it negative

    def _sample(self, scores: Tensor, sample_shape: torch.Size, generator: Generator) -> Tensor:
        self._refuse("sample")

    def _regularizer_value(self, regularizer: Regularizer, z: Tensor) -> Tensor:
        """f(z), shape of the batch."""
        return regularizer.value(z).flatten(-self.event_dims).sum(-1)

    def _check_event_shape(self, call: str, event_shape: torch.Size) -> None:  # noqa: B027
        """A sentence if no object has this shape."""

    def _check_allowed(self, call: str, scores: Tensor) -> None:  # noqa: B027
        """A sentence if masked scores leave an item without any object (values are readable here)."""

    def _inner(self, scores: Tensor, z: Tensor) -> Tensor:
        """<scores, z> with 0 * -inf = 0, shape of the batch."""
        total = (torch.where(z == 0, 0.0, scores) * z).flatten(-self.event_dims).sum(-1)
        return total if self.inner_weight == 1 else total * self.inner_weight

    def draw_noise(self, noise: Noise, scores: Tensor, generator: Generator = None) -> Tensor:
        """Noise for scores; undirected structures draw once an edge."""
        return noise.like(scores, generator)

    def _noise_parts(self, per_part: Tensor) -> Tensor:
        """A quantity of each part's noise, with parts that share their noise counted once."""
        return per_part

    reasons: ClassVar[Mapping[str, str]] = {}
    """Why a question has no answer here, and what to use instead; by method name."""

    # ==== do not touch ============================================================================

    def _family(self, tau: Tau) -> Callable[[Regularizer], Solvers]:
        """The maker for `ExponentialFamily`: marginals, and the same by automatic differentiation."""

        def unrolled(scores: Tensor) -> Tensor:
            gradient = torch.func.grad(lambda x: self._log_partition(x).sum())(scores)
            return gradient / self.inner_weight

        return lambda _: (divided(self._marginals, tau), divided(unrolled, tau))

    @property
    def name(self) -> str:
        """The class name, for sentences."""
        return type(self).__name__

    @property
    def has_log_partition(self) -> bool:
        """Whether the Gibbs law has a normaliser (so log-probabilities, marginals, exact samples)."""
        return type(self)._log_partition is not Structure._log_partition

    def _refuse(self, what: str) -> NoReturn:
        reason = self.reasons.get(what) or self.reasons.get("*") or "No exact algorithm is known."
        raise UnsupportedError(f"`{self.name}.{what}` has no answer: {reason}")

    def _clean(self, call: str, scores: Tensor, mask: Tensor | None) -> Tensor:
        call = f"{self.name}.{call}"
        self._check_shape(call, scores)
        check_scores(call, "scores", scores)
        if mask is not None:
            check_mask(call, mask, scores.shape)
            scores = masked_scores(scores, mask)
        scores = scores.to(compute_dtype(scores.dtype))
        if can_read(scores) and scores.numel():
            self._check_allowed(call, scores)
        return scores

    def _check_shape(self, call: str, scores: Tensor) -> None:
        check_floating(call, "scores", scores)
        check_event(call, "scores", scores, self.event_dims)
        self._check_event_shape(call, scores.shape[scores.dim() - self.event_dims :])

    def _check_dims(self, call: str, z: object) -> None:
        """Enough dimensions for one item, of its kind of shape."""
        call = f"{self.name}.{call}"
        if not isinstance(z, Tensor) or z.is_complex():
            check_floating(call, "z", z)
        assert isinstance(z, Tensor)
        check_event(call, "z", z, self.event_dims)
        self._check_event_shape(call, z.shape[z.dim() - self.event_dims :])

    def _check_vertices(self, call: str, z: Tensor) -> None:
        if can_read(z) and z.numel() and not bool(self.contains(z).all()):
            advice = f"`{self.name}.contains(z)` tells which items are not."
            raise fail(call, "z", "must be vertices of the structure", z, advice)

    def argmax(
        self, scores: Float[Tensor, "..."], *, mask: Bool[Tensor, "..."] | None = None
    ) -> Float[Tensor, "..."]:
        r"""$\arg\max_{z \in Z} \langle \theta, z \rangle$: exact, batched, without gradient.

        Args:
            scores: $\theta$, shape `(*batch, *event)`; `-inf` forbids a part.
            mask: True = allowed, broadcastable to `scores`.

        Returns:
            A vertex, the shape and dtype of `scores`.
        """
        if self.argmax_checks_values and mask is None:
            self._check_shape(f"{self.name}.argmax", scores)
            try:
                return self._argmax(scores)
            except InputError:
                self._clean("argmax", scores, mask)  # says the same in the structure's name
                raise
        return self._argmax(self._clean("argmax", scores, mask).detach()).to(scores.dtype)

    def relax(
        self,
        scores: Float[Tensor, "..."],
        tau: Tau = 1.0,
        *,
        regularizer: Regularizer | None = None,
        backward: Backward | None = None,
        mask: Bool[Tensor, "..."] | None = None,
    ) -> Float[Tensor, "..."]:
        r"""$\arg\max_{z \in \mathrm{conv} Z} \langle \theta, z \rangle - \tau f(z)$: soft, differentiable.

        Args:
            scores: $\theta$, shape `(*batch, *event)`; `-inf` forbids a part (exactly 0, gradient 0).
            tau: temperature; a float or a tensor that broadcasts over the batch.
            regularizer: $f$; default `default_regularizer` of the structure.
            backward: `Implicit()` (default), `Unrolled()` or `FiniteDifference(eps)`.
            mask: True = allowed, broadcastable to `scores`.

        Returns:
            A point of the hull, the shape and dtype of `scores`; tends to `argmax` as `tau` falls.
        """
        clean = self._clean("relax", scores, mask)
        batch = clean.shape[: clean.dim() - self.event_dims]
        tau = check_tau(f"{self.name}.relax", tau, batch, self.event_dims)
        check_quotient(f"{self.name}.relax", clean, tau, self.event_dims)
        regularizer = self.default_regularizer if regularizer is None else regularizer
        makers = self._relaxations(tau)
        if type(regularizer) not in makers:
            names = ", ".join(f"`{kind.__name__}`" for kind in makers) or "none"
            reason = self.reasons.get("relax", "")
            raise UnsupportedError(
                f"`{self.name}.relax(regularizer=...)` cannot solve {regularizer!r}. {reason}"
                f"It solves: {names}."
            )
        implicit, unrolled = makers[type(regularizer)](regularizer)
        if backward is None or isinstance(backward, Implicit):
            return implicit(clean).to(scores.dtype)
        if isinstance(backward, Unrolled):
            if unrolled is None:
                raise UnsupportedError(
                    f"`{self.name}.relax(backward=Unrolled())` with {regularizer!r} has no steps to unroll: its "
                    "solver is not made of differentiable operations. Use `Implicit()` or `FiniteDifference()`."
                )
            if self.has_log_partition and can_read(clean):
                check_possible(f"{self.name}.relax", self._log_partition(clean.detach()))
            soft = unrolled(clean)
            if (
                clean.requires_grad and not soft.requires_grad
            ):  # nothing to choose: constant, but in the graph
                soft = soft + 0.0 * torch.where(torch.isfinite(clean), clean, 0.0)
            return soft.to(scores.dtype)
        if isinstance(backward, FiniteDifference):
            if isinstance(regularizer, SuccessiveSoftmax):
                raise UnsupportedError(
                    f"`{self.name}.relax(backward=FiniteDifference())` would be wrong for SuccessiveSoftmax(), whose "
                    "Jacobian is not symmetric (it is a procedure, not a problem's solution). Use `Implicit()`."
                )
            return finite_difference(implicit, clean, backward.eps, self.event_dims).to(scores.dtype)
        raise fail(
            f"{self.name}.relax",
            "backward",
            "must be `Implicit()`, `Unrolled()` or `FiniteDifference(eps)`",
            backward,
            "",
        )

    def log_partition(
        self, scores: Float[Tensor, "..."], *, mask: Bool[Tensor, "..."] | None = None
    ) -> Float[Tensor, "*batch"]:
        r"""$A(\theta) = \log \sum_{z \in Z} \exp\langle\theta, z\rangle$, twice differentiable."""
        return self._log_partition(self._clean("log_partition", scores, mask)).to(scores.dtype)

    def marginals(
        self, scores: Float[Tensor, "..."], *, mask: Bool[Tensor, "..."] | None = None
    ) -> Float[Tensor, "..."]:
        r"""$\mathbb{E}[z] = \nabla A(\theta)$ under the Gibbs law, differentiable."""
        return self._marginals(self._clean("marginals", scores, mask)).to(scores.dtype)

    def entropy(
        self, scores: Float[Tensor, "..."], *, mask: Bool[Tensor, "..."] | None = None
    ) -> Float[Tensor, "*batch"]:
        r"""Entropy of the Gibbs law, $A(\theta) - \langle\theta, \nabla A(\theta)\rangle$."""
        return self._entropy(self._clean("entropy", scores, mask)).to(scores.dtype)

    def sample(
        self,
        scores: Float[Tensor, "..."],
        sample_shape: Shape = (),
        *,
        mask: Bool[Tensor, "..."] | None = None,
        generator: Generator = None,
    ) -> Float[Tensor, "..."]:
        r"""Exact draws from the Gibbs law $p(z) \propto \exp\langle\theta, z\rangle$, without gradient.

        Returns:
            Vertices, shape `sample_shape + batch + event`.
        """
        random.check_generator(f"{self.name}.sample", generator)
        clean = self._clean("sample", scores, mask).detach()
        shape = check_shape(f"{self.name}.sample", "sample_shape", sample_shape)
        return self._sample(clean, shape, generator).to(scores.dtype)

    def log_prob(
        self,
        z: Float[Tensor, "..."],
        scores: Float[Tensor, "..."],
        *,
        mask: Bool[Tensor, "..."] | None = None,
    ) -> Float[Tensor, "..."]:
        r"""$\langle\theta, z\rangle - A(\theta)$ for vertices `z` (leading sample dims allowed)."""
        clean = self._clean("log_prob", scores, mask)
        self._check_vertices(f"{self.name}.log_prob", z)
        return self._log_prob(z.to(clean.dtype), clean).to(scores.dtype)

    def _log_prob(self, z: Tensor, scores: Tensor) -> Tensor:
        log_z = self._log_partition(scores)
        check_possible(f"{self.name}.log_prob", log_z)
        return self._inner(scores, z) - log_z

    def enumerate(
        self,
        event_shape: Shape,
        *,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> Float[Tensor, "count ..."]:
        """All vertices for scores of this event shape, `(count, *event_shape)`; refuses above 10^6."""
        call = f"{self.name}.enumerate"
        shape = check_shape(call, "event_shape", event_shape)
        if len(shape) != self.event_dims:
            rule = f"must have {self.event_dims} dimension{'s' * (self.event_dims > 1)}"
            raise fail(call, "event_shape", rule, tuple(shape), "It is the shape of one item's scores.")
        if 0 in shape:
            raise nothing_offered(call, "event_shape", shape)
        self._check_event_shape(call, shape)
        total = self.count(shape)
        if total > 10**6:
            raise UnsupportedError(
                f"`{call}(event_shape={tuple(shape)})` would list {total:.3g} objects. "
                "Enumerate small cases; use `sample` or `marginals` for large ones."
            )
        dtype = torch.get_default_dtype() if dtype is None else dtype
        return self._enumerate(shape).to(dtype=dtype, device=device)


def is_binary(z: Tensor, event_dims: int) -> Tensor:
    """Whether an item holds only zeros and ones, shape of the batch."""
    return ((z == 0) | (z == 1)).flatten(z.dim() - event_dims).all(-1)


def divided(solve: Solver, tau: Tau) -> Solver:
    """The solver for `scores / tau`, leaving `-inf` alone (its quotient has a NaN gradient for tau)."""

    def run(scores: Tensor) -> Tensor:
        closed = scores == -math.inf
        return solve((scores.masked_fill(closed, 0.0) / tau).masked_fill(closed, -math.inf))

    return run
