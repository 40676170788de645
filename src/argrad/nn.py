"""Layers: the functions of argrad as `torch.nn.Module`s that keep their own step count."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from argrad._checks import check_any_allowed, check_scores, check_tau, refuse_meta
from argrad._errors import InputError
from argrad._numerics import one_hot
from argrad._types import Bool, Float, Generator
from argrad.backward import Backward
from argrad.gumbel import gumbel_softmax, items_last
from argrad.noise import Noise
from argrad.perturbed import Perturbed
from argrad.regularizers import Regularizer
from argrad.schedules import Constant, Schedule
from argrad.structures.base import Structure


class _Annealed(nn.Module):
    """A layer with a temperature schedule, whose step count is part of `state_dict`."""

    steps: Tensor

    def __init__(self, tau: float | Schedule | nn.Module, evaluate: str) -> None:
        super().__init__()
        call = type(self).__name__
        if evaluate not in ("sample", "mode"):
            raise InputError(f'`{call}(evaluate=...)` must be "sample" or "mode"; got {evaluate!r}.')
        if not callable(tau):
            if isinstance(tau, Tensor):
                refuse_meta(call, "tau", tau)
            tau = Constant(float(check_tau(call, tau, torch.Size())))
        self.schedule, self.evaluate = tau, evaluate
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))
        # What compiled code reads, where the step count cannot be: not a buffer, so that `.half()`
        # does not round it.
        self._now = torch.zeros((), dtype=torch.float64, device="cpu")
        self.register_load_state_dict_post_hook(_renew)
        _renew(self)

    @property
    def tau(self) -> float | Tensor:
        """The temperature now."""
        if isinstance(self.schedule, nn.Module):
            return self.schedule(self.steps)
        return self._now if torch.compiler.is_compiling() else self.schedule(int(self.steps))

    def step(self, by: int = 1) -> None:
        """Advance the schedule: by one, or by whatever it counts (sentences, tokens)."""
        self.steps += by
        _renew(self)

    def _shown_tau(self) -> str:
        return "" if isinstance(self.schedule, nn.Module) else f"tau={self.schedule}, "


def _renew(layer: _Annealed, _: object = None) -> None:
    """After a change of the step count. (A function: a hook that is a lambda could not be pickled.)"""
    if not isinstance(layer.schedule, nn.Module):
        step = 0 if layer.steps.is_meta else int(layer.steps)  # meta: made now, loaded later
        layer._now.fill_(layer.schedule(step))


class GumbelSoftmax(_Annealed):
    r"""A layer that turns logits into a relaxed (or straight-through) one-hot sample.

    In training the temperature follows the schedule; call `step()` once an optimiser step to advance
    it. The step count is part of `state_dict`, so that a resumed run keeps its temperature. In
    evaluation the output is hard: a fresh sample, or the mode.

    Args:
        tau: a temperature, or a schedule from `argrad.schedules` (`Learnable` included).
        hard: straight-through in training.
        dim: the dimension that holds the items.
        evaluate: what `eval()` returns: a hard `"sample"` or the `"mode"`.

    Examples:
        >>> import torch, argrad as ag
        >>> layer = ag.nn.GumbelSoftmax(ag.schedules.Exponential(rate=0.1, every=1), hard=True)
        >>> layer(torch.zeros(2, 5)).sum(-1)
        tensor([1., 1.])
        >>> layer.step(); round(layer.tau, 3)
        0.905

    References: [jang2017].
    """

    def __init__(
        self,
        tau: float | Schedule | nn.Module = 1.0,
        *,
        hard: bool = False,
        dim: int = -1,
        evaluate: Literal["sample", "mode"] = "sample",
    ) -> None:
        super().__init__(tau, evaluate)
        self.hard, self.dim = hard, dim

    def forward(
        self,
        logits: Float[Tensor, "*shape"],
        mask: Bool[Tensor, "..."] | None = None,
        generator: Generator = None,
    ) -> Float[Tensor, "*shape"]:
        """Sample; the shape of `logits`."""
        if self.training:
            return gumbel_softmax(logits, self.tau, self.hard, self.dim, mask=mask, generator=generator)
        if self.evaluate == "mode":
            return self._mode(logits, mask)
        return gumbel_softmax(logits, 1.0, True, self.dim, mask=mask, generator=generator).detach()

    def _mode(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        scores, dim = items_last("GumbelSoftmax", logits, self.dim, mask, None)
        check_scores("GumbelSoftmax", "logits", scores)
        check_any_allowed("GumbelSoftmax", scores)
        return one_hot(scores.argmax(-1, keepdim=True), scores).to(logits.dtype).movedim(-1, dim)

    def extra_repr(self) -> str:
        """Settings that are not submodules."""
        return f"{self._shown_tau()}hard={self.hard}, dim={self.dim}, evaluate={self.evaluate!r}"


class StochasticSoftmax(_Annealed):
    r"""A layer that turns scores into a random, relaxed object of any structure.

    structure x noise x regularizer x backward: `Perturbed(structure, scores, noise).rsample(tau, ...)`
    with a temperature schedule that the layer keeps. In evaluation the output is hard: a fresh
    sample, or the arg max of the scores.

    Args:
        structure: the set Z, e.g. `argrad.SpanningTree()`.
        tau: a temperature, or a schedule from `argrad.schedules`.
        noise: None is the structure's natural noise.
        noise_scale: size of the noise.
        regularizer: None is the structure's default.
        backward: None is `Implicit()`.
        hard: straight-through in training.
        evaluate: what `eval()` returns: a hard `"sample"` or the `"mode"`.

    Examples:
        >>> import torch, argrad as ag
        >>> layer = ag.nn.StochasticSoftmax(ag.Subset(2), tau=0.5, hard=True)
        >>> layer(torch.zeros(3, 5)).sum(-1)
        tensor([2., 2., 2.])

    References: [paulus2020].
    """

    def __init__(
        self,
        structure: Structure,
        *,
        tau: float | Schedule | nn.Module = 1.0,
        noise: Noise | None = None,
        noise_scale: float = 1.0,
        regularizer: Regularizer | None = None,
        backward: Backward | None = None,
        hard: bool = False,
        evaluate: Literal["sample", "mode"] = "sample",
    ) -> None:
        super().__init__(tau, evaluate)
        self.structure, self.noise, self.noise_scale = structure, noise, noise_scale
        self.regularizer, self.backward_rule, self.hard = regularizer, backward, hard

    def forward(
        self,
        scores: Float[Tensor, "..."],
        mask: Bool[Tensor, "..."] | None = None,
        generator: Generator = None,
    ) -> Float[Tensor, "..."]:
        """Sample; the shape of `scores`."""
        q = Perturbed(self.structure, scores, noise=self.noise, noise_scale=self.noise_scale, mask=mask)
        if not self.training:
            return q.mode if self.evaluate == "mode" else q.sample(generator=generator)
        return q.rsample(
            tau=self.tau,
            hard=self.hard,
            regularizer=self.regularizer,
            backward=self.backward_rule,
            generator=generator,
        )

    def extra_repr(self) -> str:
        """Settings that are not submodules."""
        return f"{self.structure!r}, {self._shown_tau()}hard={self.hard}, evaluate={self.evaluate!r}"
