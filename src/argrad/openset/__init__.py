r"""Inputs from outside: a softmax says which of the known classes, not whether it is any of them.

Scores tell how strange an input looks to a classifier; `auroc`, `aupr` and `fpr_at_tpr` tell how well a score
separates; `Shell` and `ConfidentGAN` make outliers to train against with `argrad.ConfidenceLoss`.
"""

from __future__ import annotations

from argrad.openset.gan import ConfidentGAN, GanStep, pull_away
from argrad.openset.metrics import aupr, auroc, fpr_at_tpr
from argrad.openset.scores import energy, entropy, max_logit, max_softmax, reject
from argrad.openset.shell import Shell

__all__ = [
    "ConfidentGAN",
    "GanStep",
    "Shell",
    "aupr",
    "auroc",
    "energy",
    "entropy",
    "fpr_at_tpr",
    "max_logit",
    "max_softmax",
    "pull_away",
    "reject",
]
