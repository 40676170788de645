"""What each tab shows, computed by the library: the browser's numbers are compared with these.

Every function takes the state of its tab as the browser sent it, checks it, limits the work, and returns plain lists.
The names are those of `page/numbers.js` and of the programs in `page/python.js`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

import argrad as ag
from argrad import _problems
from argrad.play.fields import Fields

State = Mapping[str, object]
Numbers = dict[str, Any]

SEEDS = 2**31 - 1
ESTIMATORS = (
    "Reinforce",
    "LeaveOneOut",
    "MovingBaseline",
    "MuProp",
    "Rebar",
    "DisArm",
    "SumAndSample",
    "UnorderedSet",
    "LocalExpectation",
    "StraightThrough",
    "GumbelST",
    "GumbelRao",
    "ReinMax",
    "Relaxed",
    "Imle",
    "PerturbedOptimizer",
)
LAWS = ("onehot", "bits", "subset", "spanningtree")


def simplex(state: State) -> Numbers:
    """Gumbel-softmax samples of three items, their mean, and how often each item wins."""
    fields = Fields("simplex", state)
    fields.only("logits", "tau", "seed", "draws")
    logits = _tensor(fields.vector("logits", 3, 3))
    tau, draws, rng = fields.number("tau", 0.01, 100), fields.integer("draws", 1, 1000), _rng(fields)
    soft = ag.gumbel_softmax(logits.expand(draws, 3), tau, generator=rng)
    hard = ag.gumbel_softmax(logits.expand(draws, 3), tau, hard=True, generator=rng)
    return _lists(soft=soft, mean=soft.mean(0), frequency=hard.mean(0), expectation=logits.softmax(-1))


def race(state: State) -> Numbers:
    """The winners of Gumbel-max races, and the last race in detail."""
    fields = Fields("race", state)
    fields.only("logits", "seed", "rounds")
    logits, rng = _tensor(fields.vector("logits", 2, 10)), _rng(fields)
    n, rounds = len(logits), fields.integer("rounds", 1, 2000)
    winners = ag.gumbel_max(logits.expand(rounds, n), generator=rng)
    perturbed = logits + rng.shift(rows=rounds - 1).gumbel(1, n, dtype=torch.float64)[0]
    return _lists(
        winners=winners,
        perturbed=perturbed,
        times=(-perturbed).exp(),
        share=torch.bincount(winners, minlength=n).double() / rounds,
        probability=logits.softmax(-1),
    )


def structures(state: State) -> Numbers:
    """One draw of a structure: perturbed scores, relaxed and hard solution."""
    fields = Fields("structures", state)
    fields.only("structure", "k", "scores", "tau", "seed", "noise")
    kind = fields.choice("structure", ("subset", "permutation", "tree", "arborescence"))
    tau = fields.number("tau", 0.02, 100)
    if kind == "subset":
        scores = fields.vector("scores", 2, 10)
        made: ag.Structure = ag.Subset(fields.integer("k", 1, len(scores)))
    else:
        scores = fields.square("scores", 2, 6)
        made = {
            "permutation": ag.Permutation(),
            "tree": ag.SpanningTree(),
            "arborescence": ag.Arborescence(root=0),
        }[kind]
    noise = None if fields.boolean("noise") else ag.NoNoise()
    q = ag.Perturbed(made, _tensor(scores), noise=noise)
    draw = q.draw(tau=tau, generator=_rng(fields))
    return _lists(perturbed=draw.perturbed, soft=draw.soft, hard=draw.hard)


def beam(state: State) -> Numbers:
    """A stochastic beam search on a bigram model of two letters, at most three tokens long."""
    fields = Fields("beam", state)
    fields.only("table", "k", "seed")
    table = _tensor(fields.square("table", 3, 3))

    def step(token: Tensor | None, last: Tensor) -> tuple[Tensor, Tensor]:
        last = last if token is None else token
        return table[last], last

    sample = ag.stochastic_beam_search(
        step, torch.tensor([0]), fields.integer("k", 1, 8), eos=0, max_len=3, generator=_rng(fields)
    )
    return _lists(
        tokens=sample.tokens[0],
        log_prob=sample.log_prob[0],
        perturbed=sample.perturbed[0],
        kappa=sample.kappa[0],
        weights=sample.weights("importance")[0],
    )


def estimators(state: State) -> Numbers:
    """Bias, variance and time of gradient estimators on a small random problem."""
    fields = Fields("estimators", state)
    names = ("structure", "n", "k", "cost", "perturbed", "estimators", "replicates", "seed")
    fields.only(*names)
    law = fields.choice("structure", LAWS)
    n = fields.integer("n", 2, 4 if law == "spanningtree" else 6)
    k = fields.integer("k", 1, n)
    seed = fields.integer("seed", 0, SEEDS)
    q = _problems.make_law(law, n, k, perturbed=fields.boolean("perturbed"), seed=seed)
    cost = _problems.make_cost(fields.choice("cost", _problems.COSTS), q, seed)
    chosen = _problems.make_estimators(",".join(fields.choices("estimators", ESTIMATORS)), q)
    replicates = fields.integer("replicates", 10, 2000)
    generator = torch.Generator().manual_seed(seed)
    report = ag.diagnose(cost, q, chosen, replicates=replicates, generator=generator)
    rows = [
        {key: value if _fits_json(value) else None for key, value in vars(row).items()}
        for row in report.rows
    ]
    return {"rows": rows, "oracle": report.oracle, "replicates": report.replicates}


TABS: dict[str, Callable[[State], Numbers]] = {
    "simplex": simplex,
    "race": race,
    "estimators": estimators,
    "structures": structures,
    "beam": beam,
}


def presets() -> list[State]:
    """The questions whose measured answers a page on disk carries with it: every law, one cost."""
    shared = {"k": 2, "cost": "tanh", "perturbed": False, "estimators": list(ESTIMATORS), "seed": 0}
    return [
        {"structure": law, "n": 4 if law == "spanningtree" else 5, "replicates": 1000, **shared}
        for law in LAWS
    ]


def _rng(fields: Fields) -> ag.CounterRNG:
    return ag.CounterRNG(fields.integer("seed", 0, SEEDS))


def _tensor(values: list[Any]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def _lists(**tensors: Tensor | None) -> Numbers:
    return {name: x.tolist() for name, x in tensors.items() if x is not None}


def _fits_json(value: object) -> bool:
    return not isinstance(value, float) or math.isfinite(value)
