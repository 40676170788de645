"""Layers: the functions of argrad as `torch.nn.Module`s that keep their own step count."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from argrad._checks import check_tau
from argrad._errors import InputError
from argrad._types import Bool, Float, Generator
from argrad.gumbel import gumbel_softmax
from argrad.schedules import Constant, Schedule


class GumbelSoftmax(nn.Module):
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

    steps: Tensor

    def __init__(
        self,
        tau: float | Schedule | nn.Module = 1.0,
        *,
        hard: bool = False,
        dim: int = -1,
        evaluate: Literal["sample", "mode"] = "sample",
    ) -> None:
        super().__init__()
        if evaluate not in ("sample", "mode"):
            raise InputError(
                f'`GumbelSoftmax(evaluate=...)` must be "sample" or "mode"; got {evaluate!r}.'
            )
        if isinstance(tau, (int, float)):
            tau = Constant(float(check_tau("GumbelSoftmax", tau, torch.Size())))
        self.schedule = tau
        self.hard, self.dim, self.evaluate = hard, dim, evaluate
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    @property
    def tau(self) -> float | Tensor:
        """The temperature now."""
        return self.schedule(int(self.steps))

    def step(self) -> None:
        """Advance the schedule by one."""
        self.steps += 1

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
            scores = logits if mask is None else logits.masked_fill(~mask, -torch.inf)
            return torch.zeros_like(logits).scatter_(
                self.dim, scores.argmax(self.dim, keepdim=True), 1.0
            )
        return gumbel_softmax(logits, 1.0, True, self.dim, mask=mask, generator=generator).detach()

    def extra_repr(self) -> str:
        """Settings that are not submodules."""
        shown = "" if isinstance(self.schedule, nn.Module) else f"tau={self.schedule}, "
        return f"{shown}hard={self.hard}, dim={self.dim}, evaluate={self.evaluate!r}"
