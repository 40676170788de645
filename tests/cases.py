"""The list: every part of argrad that has a contract, once. A new part adds one line and inherits its tests.

`test_cases.py` fails when a public noise, schedule, distribution, structure or estimator is missing here.
Structures and estimators have longer lines, in files of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.distributions import Distribution

import argrad as ag
from estimator_cases import ESTIMATORS
from structure_cases import STRUCTURES

__all__ = [
    "CLASS_NOISES",
    "DISTRIBUTIONS",
    "ESTIMATORS",
    "NOISES",
    "SCHEDULES",
    "STRUCTURES",
    "DistributionCase",
]

NOISES = [
    ag.Gumbel(),
    ag.Logistic(),
    ag.Normal(),
    ag.NegExponential(),
    ag.ExponentialRace(),
    ag.SumOfGamma(1, terms=1),
    ag.SumOfGamma(5),
    ag.NoNoise(),
]

# Laws over classes; InBatch draws nothing by itself, and test_class_noise.py has tests of its own for it.
CLASS_NOISES = [
    ag.AliasTable([5.0]),
    ag.AliasTable([1.0, 0.0, 3.0, 0.5, 1e-3]),
    ag.Unigram([100.0, 7.0, 0.0, 30.0, 1.0]),
    ag.Unigram(torch.arange(1, 100), power=0.0),
    ag.LogUniform(1),
    ag.LogUniform(37),
]

SCHEDULES = [
    ag.schedules.Constant(0.7),
    ag.schedules.Exponential(),
    ag.schedules.Exponential(start=5.0, rate=1e-2, floor=0.1, every=1),
    ag.schedules.Linear(1.0, 0.1, 1000),
    ag.schedules.Linear(0.5, 2.0, 10),
    ag.schedules.Cosine(2.0, 0.3, 500),
    ag.schedules.Learnable(1.0),
    ag.schedules.Learnable(0.5, floor=0.01, shape=(3,)),
]


@dataclass(frozen=True)
class DistributionCase:
    """One line of the list of distributions.

    Attributes:
        name: for test ids.
        make: the distribution of logits `(*batch, n)`.
        differentiable: `rsample` has a gradient for the logits, `log_prob` too.
    """

    name: str
    make: Callable[[Tensor], Distribution]
    differentiable: bool = True


DISTRIBUTIONS = [
    DistributionCase("RelaxedOneHot", lambda x: ag.RelaxedOneHot(0.5, logits=x)),
    DistributionCase("RelaxedOneHot-cold", lambda x: ag.RelaxedOneHot(0.05, logits=x)),
    DistributionCase(
        "RelaxedOneHot-tensor", lambda x: ag.RelaxedOneHot(torch.full(x.shape[:-1], 0.7), logits=x)
    ),
    DistributionCase("RelaxedOneHot-probs", lambda x: ag.RelaxedOneHot(0.5, probs=x.exp())),
    DistributionCase("RelaxedBits", lambda x: ag.RelaxedBits(0.5, logits=x)),
    DistributionCase("RelaxedBits-probs", lambda x: ag.RelaxedBits(0.2, probs=x.sigmoid())),
    DistributionCase("GumbelSoftmax", lambda x: ag.GumbelSoftmax(0.5, logits=x)),
    DistributionCase(
        "GumbelSoftmax-tensor", lambda x: ag.GumbelSoftmax(torch.full(x.shape[:-1], 0.7), logits=x)
    ),
    DistributionCase("Gibbs", lambda x: ag.Gibbs(ag.OneHot(), x), differentiable=False),
    DistributionCase("Perturbed", lambda x: ag.Perturbed(ag.OneHot(), x), differentiable=False),
]
