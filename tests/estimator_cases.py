"""Every estimator, with how often to run it in the tests of its bias."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

import argrad as ag


@dataclass(frozen=True)
class EstimatorCase:
    """One line of the list.

    Attributes:
        name: for test ids.
        make: an estimator for a distribution (some have networks of its size).
        replicates: enough to see a bias of a few per cent.
        may_look_unbiased: a bias too small, or absent, on some of the laws of the tests.
    """

    name: str
    make: Callable[[ag.structured.StructuredDistribution], ag.Estimator]
    replicates: int = 40_000
    may_look_unbiased: bool = False


def _linear(q) -> nn.Module:
    return nn.Linear(q.event_shape.numel(), 1).double()


ESTIMATORS = [
    EstimatorCase("Exact", lambda q: ag.Exact(), 4),
    EstimatorCase("LocalExpectation", lambda q: ag.LocalExpectation(), 20_000),
    EstimatorCase("Reinforce", lambda q: ag.Reinforce(baseline=0.5)),
    EstimatorCase("LeaveOneOut", lambda q: ag.LeaveOneOut(4)),
    EstimatorCase("MovingBaseline", lambda q: ag.MovingBaseline()),
    EstimatorCase("Nvil", lambda q: ag.Nvil(_linear(q))),
    EstimatorCase("Vimco", lambda q: ag.Vimco(3)),
    EstimatorCase("SumAndSample", lambda q: ag.SumAndSample(3)),
    EstimatorCase("UnorderedSet", lambda q: ag.UnorderedSet(3), 6_000),
    EstimatorCase("StraightThrough", lambda q: ag.StraightThrough()),
    EstimatorCase("GumbelST", lambda q: ag.GumbelST(0.8)),
    EstimatorCase("ReinMax", lambda q: ag.ReinMax()),
    EstimatorCase("ReinMaxCV", lambda q: ag.ReinMaxCV(), 20_000),
    EstimatorCase("GumbelRao", lambda q: ag.GumbelRao(0.8, 4), 20_000),
    EstimatorCase("GappedST", lambda q: ag.GappedST()),
    EstimatorCase("DecoupledST", lambda q: ag.DecoupledST()),
    EstimatorCase("Rebar", lambda q: ag.Rebar()),
    EstimatorCase("Relax", lambda q: ag.Relax(_linear(q))),
    EstimatorCase("MuProp", lambda q: ag.MuProp()),
    EstimatorCase("Darn", lambda q: ag.Darn()),
    EstimatorCase("Arm", lambda q: ag.Arm()),
    EstimatorCase("DisArm", lambda q: ag.DisArm()),
    EstimatorCase("Relaxed", lambda q: ag.Relaxed(0.8)),
    EstimatorCase("HardConcrete", lambda q: ag.HardConcrete()),
    EstimatorCase("PerturbedOptimizer", lambda q: ag.PerturbedOptimizer(10), 20_000),
    EstimatorCase("Imle", lambda q: ag.Imle()),
    EstimatorCase("AdaptiveImle", lambda q: ag.AdaptiveImle()),
    EstimatorCase("Blackbox", lambda q: ag.Blackbox()),
    EstimatorCase("Identity", lambda q: ag.Identity()),
]
