"""What every fit and metric asks of logits and labels."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from argrad._checks import (
    can_read,
    check_event,
    check_floating,
    check_labels,
    check_scores,
    fail,
)


def check_targets(call: str, logits: Tensor, labels: Tensor, weights: Tensor | None = None) -> None:
    """Logits `(*batch, n, classes)`, a possible label for each row, at least one row; or a sentence."""
    check_floating(call, "logits", logits)
    check_event(call, "logits", logits, 2)
    check_scores(call, "logits", logits)
    check_labels(call, "labels", labels, logits)
    if can_read(logits, labels) and labels.numel():
        impossible = label_values(logits.detach(), labels) == -math.inf
        if bool(impossible.any()):
            first = tuple(int(i) for i in impossible.nonzero()[0])
            raise fail(
                call,
                "labels",
                "must be possible under the logits",
                f"a label at index {first} whose logit is -inf",
                "Its likelihood is 0 at every temperature: drop the row, or give the class a finite logit.",
            )
    if weights is not None:
        check_weights(call, weights, labels)


def check_weights(call: str, weights: Tensor, labels: Tensor) -> None:
    """One weight an example, none negative, some positive."""
    check_floating(call, "weights", weights)
    if weights.shape != labels.shape:
        rule = f"must have the labels' shape {tuple(labels.shape)}"
        raise fail(call, "weights", rule, f"shape {tuple(weights.shape)}", "One weight an example.")
    if not can_read(weights) or not weights.numel():
        return
    usable = bool((weights >= 0).all()) and bool((weights.sum(-1) > 0).all())
    if not usable or not bool(torch.isfinite(weights).all()):
        advice = "Use 0 to leave an example out."
        raise fail(call, "weights", "must be finite, at least 0, and not all 0", weights, advice)


def shares(weights: Tensor | None, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Weights that sum to 1 over the examples, in float64, and the number of examples they are worth."""
    if weights is None:
        n = labels.shape[-1]
        w = torch.full(labels.shape, 1 / n, dtype=torch.float64, device=labels.device)
        return w, torch.full(labels.shape[:-1], float(n), dtype=torch.float64, device=labels.device)
    w = weights.detach().double()
    w = w / w.sum(-1, keepdim=True)
    return w, 1 / (w * w).sum(-1)


def label_values(values: Tensor, labels: Tensor) -> Tensor:
    """`values[..., label]`, shape of the labels."""
    return values.gather(-1, labels.to(torch.int64)[..., None])[..., 0]
