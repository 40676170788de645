r"""Watch the gradients of random choices while a model trains."""

from __future__ import annotations

import json
import math
import weakref
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from argrad._types import Float
from argrad.structured import StructuredDistribution
from argrad.structures.one_hot import OneHot


class GradientMonitor:
    r"""Running figures of the gradient that reaches the scores of each random choice.

    For each watched tensor: the signal-to-noise ratio $\|\bar g\| / \sqrt{\sum \mathrm{Var}\, g}$ of the gradient over
    steps, the share of starved rows (a gradient of exactly 0: saturated softmax, temperature too low), the
    mean entropy of the choice, classes that are hardly ever likely (dead), and the temperature. Statistics
    stay on the tensor's device until `report` is called; nothing waits for the device in the training loop.

    Args:
        decay: of the running averages.

    Examples:
        >>> import torch, argrad as ag
        >>> monitor, scores = ag.GradientMonitor(), torch.zeros(4, 3, requires_grad=True)
        >>> for _ in range(3):
        ...     z = ag.gumbel_softmax(monitor.watch("z", scores), tau=0.5)
        ...     (z * torch.arange(3.0)).sum().backward()
        >>> monitor.report()["z"]["steps"]
        3
    """

    def __init__(self, decay: float = 0.99) -> None:
        self.decay = decay
        self._figures: dict[str, dict[str, Any]] = {}

    def watch(
        self,
        name: str,
        scores: Float[Tensor, "*batch n"] | StructuredDistribution,
        *,
        tau: float | Tensor | None = None,
    ) -> Any:
        """Watch the gradient of `scores` (or of a distribution's scores) in this step; returns its argument."""
        tensor = scores.scores if isinstance(scores, StructuredDistribution) else scores
        categorical = isinstance(scores, Tensor) or isinstance(scores.structure, OneHot)
        figures = self._figures.setdefault(name, {"steps": 0, "weight": 0.0})
        figures["tau"] = tau
        if categorical:
            self._see_choice(figures, tensor.detach())
        last = figures.get("hooked")
        if tensor.requires_grad and (last is None or last() is not tensor):  # a leaf keeps its hook
            figures["hooked"] = weakref.ref(tensor)
            tensor.register_hook(lambda grad: self._see_gradient(figures, grad.detach()))
        return scores

    def report(self) -> dict[str, dict[str, Any]]:
        """Plain numbers for each name."""
        return {name: self._numbers(figures) for name, figures in self._figures.items()}

    def table(self) -> str:
        """A table for the terminal."""
        lines = [
            f"{'choice':<16}{'steps':>7}{'SNR':>9}{'starved':>9}{'entropy':>9}{'dead':>6}{'tau':>8}"
        ]
        for name, r in self.report().items():
            cells = [_show(r[key]) for key in ("snr", "starved", "entropy")]
            dead, tau = _show(r["dead_classes"]), _show(r["tau"])
            lines.append(
                f"{name:<16}{r['steps']:>7}" + "".join(f"{c:>9}" for c in cells) + f"{dead:>6}{tau:>8}"
            )
        return "\n".join(lines)

    def to_json(self) -> str:
        """The report as JSON text."""
        return json.dumps(self.report(), indent=2)

    # ---- parts ------------------------------------------------------------------------------------

    def _average(self, figures: dict[str, Any], key: str, value: Tensor) -> None:
        old = figures.get(key)
        value = value.detach().double() if value.device.type == "cpu" else value.detach().float()
        figures[key] = value if old is None else old * self.decay + value * (1 - self.decay)

    def _see_choice(self, figures: dict[str, Any], scores: Tensor) -> None:
        log_p = torch.log_softmax(scores.float(), -1)
        p = log_p.exp()
        entropy = -(p * log_p.masked_fill(log_p == -math.inf, 0.0)).sum(-1)
        self._average(figures, "entropy", entropy.mean())
        self._average(figures, "likely", p.flatten(0, -2).mean(0) if p.dim() > 1 else p)

    def _see_gradient(self, figures: dict[str, Any], grad: Tensor) -> None:
        figures["steps"] += 1
        flat = grad.flatten(0, -2) if grad.dim() > 1 else grad[None]
        self._average(figures, "starved", (flat == 0).all(-1).to(grad.dtype).mean())
        step = flat.mean(0)  # the batch's gradient, by class
        self._average(figures, "first", step)
        self._average(figures, "second", step**2)

    def _numbers(self, figures: Mapping[str, Any]) -> dict[str, Any]:
        tau = figures.get("tau")
        result: dict[str, Any] = {
            "steps": figures["steps"],
            "starved": _float(figures.get("starved")),
            "entropy": _float(figures.get("entropy")),
            "tau": _float(tau) if isinstance(tau, Tensor) else tau,
            "snr": None,
            "dead_classes": None,
        }
        if "first" in figures:
            mean, variance = figures["first"], figures["second"] - figures["first"] ** 2
            noise = variance.clamp(min=0).sum().sqrt().item()
            result["snr"] = mean.norm().item() / noise if noise > 0 else None
        if "likely" in figures:
            likely = figures["likely"]
            result["dead_classes"] = int((likely < 0.01 / likely.numel()).sum())
        return result


def _float(value: Tensor | None) -> float | None:
    return None if value is None else float(value.mean())


def _show(value: float | int | None) -> str:
    if value is None:
        return "-"
    return str(value) if isinstance(value, int) else f"{value:.3g}"
