"""Steps on three bits, every method that storchastic has too: nothing but overhead is measured.

Three ways to take them: one step by autograd, one by `ag.compile_gradient`, and a thousand estimates of the same
gradient at once, as an audit of bias and variance needs them (`evaluate`; storchastic takes one step after the other).

storchastic (GPL: installed for this comparison only, never read or copied) replaces functions of torch when it is
imported, which slows everything in the same process. It therefore runs in a process of its own, in turns with ours.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import argrad as ag
from benchmarks.elsewhere import Elsewhere
from benchmarks.line import Line, Speedup, Step

BITS = torch.tensor([0.3, -0.5, 0.8])
TARGET = torch.tensor([0.2, 0.6, 0.4])
GOAL, MANY = 50, 1000

# name -> (ours, storchastic's)
METHODS: dict[str, tuple[Callable[[], ag.Estimator], str]] = {
    "Exact": (ag.Exact, "Expect"),
    "Reinforce": (ag.Reinforce, "ScoreFunction"),
    "LeaveOneOut(4)": (lambda: ag.LeaveOneOut(4), "ScoreFunction, batch average, 4 samples"),
    "MovingBaseline": (ag.MovingBaseline, "ScoreFunction, moving average"),
    "Relaxed": (ag.Relaxed, "GumbelSoftmax"),
    "GumbelST": (ag.GumbelST, "GumbelSoftmax, straight-through"),
    "Rebar": (ag.Rebar, "REBAR"),
    "Relax": (lambda: ag.Relax(_network()), "RELAX"),
    "Arm": (ag.Arm, "ARM"),
    "UnorderedSet(4)": (lambda: ag.UnorderedSet(4), "UnorderedSetEstimator, k = 4"),
}


def _network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(3, 1)


def cost(z: Tensor) -> Tensor:
    return ((z - TARGET) ** 2).sum(-1) + 1.5 * z.prod(-1)


def product_cost(z: Tensor) -> Tensor:
    """The same, in the form that inductor compiles to less (storchastic is faster with the other)."""
    return ((z - TARGET) ** 2).sum(-1) + 1.5 * (z[..., 0] * z[..., 1] * z[..., 2])


def _eager(name: str) -> Step:
    """The three lines of the README."""
    scores, estimator = BITS.clone().requires_grad_(), METHODS[name][0]()

    def step() -> Tensor:
        scores.grad = None
        estimator(cost, ag.Gibbs(ag.Bits(), scores)).backward()
        return scores.grad

    return step


def _compiled(name: str) -> Step:
    """The gradients for the bits and for what the estimator itself trains, as one compiled function."""
    scores, estimator = BITS.clone().requires_grad_(), METHODS[name][0]()
    own = list(estimator.parameters()) if isinstance(estimator, nn.Module) else []
    step = ag.compile_gradient(
        lambda: estimator(product_cost, ag.Gibbs(ag.Bits(), scores)), [scores, *own]
    )
    return lambda: step()[1][0]


def _many(name: str) -> Step:
    """A thousand estimates, as `ag.diagnose` makes them."""
    estimator = METHODS[name][0]()
    q = ag.Gibbs(ag.Bits(), BITS.expand(MANY, 3))
    return lambda: estimator.evaluate(cost, q).scores_grad


def storchastic(name: str) -> Step:
    """Called in a process of its own."""
    import storch

    make: dict[str, Callable[[], Any]] = {
        "Exact": lambda: storch.method.Expect("z"),
        "Reinforce": lambda: storch.method.ScoreFunction("z"),
        "LeaveOneOut(4)": lambda: storch.method.ScoreFunction(
            "z", n_samples=4, baseline_factory="batch_average"
        ),
        "MovingBaseline": lambda: storch.method.ScoreFunction("z", baseline_factory="moving_average"),
        "Relaxed": lambda: storch.method.GumbelSoftmax("z"),
        "GumbelST": lambda: storch.method.GumbelSoftmax("z", straight_through=True),
        "Rebar": lambda: storch.method.REBAR("z"),
        "Relax": lambda: storch.method.RELAX("z", in_dim=[3]),
        "Arm": lambda: storch.method.ARM("z"),
        "UnorderedSet(4)": lambda: storch.method.UnorderedSetEstimator("z", k=4),
    }
    scores, method = BITS.clone().requires_grad_(), make[name]()

    def step() -> Tensor:
        scores.grad = None
        z = method(torch.distributions.Bernoulli(logits=scores))
        storch.add_cost(((z - TARGET) ** 2).sum(-1) + 1.5 * z.prod(-1), "cost")
        storch.backward()
        return scores.grad

    return step


def _check(ours: Tensor, peer: Tensor) -> None:
    """Gradients for three bits; of one sample each, so that only their shape can be compared."""
    assert ours.shape[-1:] == peer.shape
    assert bool(torch.isfinite(ours).all())


def _check_exact(ours: Tensor, peer: Tensor) -> None:
    torch.testing.assert_close(ours, peer.expand_as(ours))


def _line(name: str, how: str, make: Callable[[str], Step], part: float) -> Line:
    return Line(
        name=f"three bits, {name}{how}",
        ours=lambda: make(name),
        peer=lambda: Elsewhere("benchmarks.lines.three_bits:storchastic", name),
        peer_name=f"storchastic {METHODS[name][1]}",
        package="storchastic",
        check=_check_exact if name == "Exact" else _check,
        goals={1: Speedup(GOAL)},
        threads=(1,),
        unit="us",
        part=part,
    )


LINES = tuple(
    _line(name, how, make, part)
    for how, make, part in (
        ("", _eager, 1),
        (", compiled", _compiled, 1),
        (f", {MANY} estimates", _many, 1 / MANY),
    )
    for name in METHODS
)
