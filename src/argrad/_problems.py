"""Small random problems by name, for `argrad diagnose` and for whoever wants to try an estimator."""

from __future__ import annotations

import difflib
from collections.abc import Callable

import torch
from torch import Tensor, nn

import argrad as ag
from argrad._errors import InputError
from argrad.estimators.base import Cost, Estimator
from argrad.structured import StructuredDistribution
from argrad.structures.base import Structure

_STRUCTURES: dict[str, Callable[[int, int], tuple[Structure, tuple[int, ...]]]] = {
    "onehot": lambda n, k: (ag.OneHot(), (n,)),
    "bits": lambda n, k: (ag.Bits(), (n,)),
    "subset": lambda n, k: (ag.Subset(k), (n,)),
    "chainsubset": lambda n, k: (ag.ChainSubset(k), (2 * n - 1,)),
    "permutation": lambda n, k: (ag.Permutation(), (n, n)),
    "spanningtree": lambda n, k: (ag.SpanningTree(), (n, n)),
    "arborescence": lambda n, k: (ag.Arborescence(), (n, n)),
    "chain": lambda n, k: (ag.Chain(), (n - 1, k, k)),
}
STRUCTURES = tuple(_STRUCTURES)
COSTS = ("linear", "quadratic", "product", "tanh")


def make_law(structure: str, n: int, k: int, *, perturbed: bool, seed: int) -> StructuredDistribution:
    """A law over a structure of size n with standard normal scores in float64."""
    name = structure.lower().replace("_", "").replace("-", "")
    if name not in _STRUCTURES:
        raise InputError(f"--structure must be one of {', '.join(STRUCTURES)}; got {structure!r}.")
    made, event = _STRUCTURES[name](n, k)
    scores = torch.randn(event, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    if perturbed or not made.has_log_partition:
        return ag.Perturbed(made, scores)
    return ag.Gibbs(made, scores)


def make_cost(name: str, q: StructuredDistribution, seed: int) -> Cost:
    """A cost of the flattened event: linear, quadratic, product, or a small tanh network."""
    size, dims = q.event_shape.numel(), len(q.event_shape)
    g = torch.Generator().manual_seed(seed + 1)

    def randn(*shape: int) -> Tensor:
        return torch.randn(shape, dtype=torch.float64, generator=g)

    c, A, W, v = randn(size), randn(size, size) / size**0.5, randn(size, 8), randn(8)
    costs: dict[str, Cost] = {
        "linear": lambda x: x @ c,
        "quadratic": lambda x: ((x @ A) * x).sum(-1) + x @ c,
        "product": lambda x: (1.0 + 0.5 * x * c).prod(-1),
        "tanh": lambda x: torch.tanh(x @ W) @ v,
    }
    if name not in costs:
        raise InputError(f"--cost must be one of {', '.join(COSTS)}; got {name!r}.")
    return lambda z: costs[name](z.flatten(z.dim() - dims))


def make_estimators(names: str, q: StructuredDistribution) -> dict[str, Estimator]:
    """Estimators by class name, comma-separated; `all` is every one that works with `q`."""
    known = estimator_classes()
    if names == "all":
        made = {name: _make(kind, q) for name, kind in known.items()}
        return {name: est for name, est in made.items() if est.works_with(q) and name != "Exact"}
    lower = {name.lower(): name for name in known}
    chosen: dict[str, Estimator] = {}
    for text in names.split(","):
        key = text.strip().lower().replace("_", "").replace("-", "")
        if key not in lower:
            near = difflib.get_close_matches(key, lower, 3)
            hint = f" Did you mean {', '.join(lower[m] for m in near)}?" if near else ""
            raise InputError(f"--estimators: there is no estimator {text.strip()!r}.{hint}")
        chosen[lower[key]] = _make(known[lower[key]], q)
    return chosen


def estimator_classes() -> dict[str, type[Estimator]]:
    """Every public estimator class, by name."""
    found = {name: getattr(ag, name) for name in ag.__all__}
    return {
        name: value
        for name, value in found.items()
        if isinstance(value, type) and issubclass(value, Estimator) and value is not Estimator
    }


def _make(kind: type[Estimator], q: StructuredDistribution) -> Estimator:
    if kind is ag.Relax:  # the one that needs a network
        return ag.Relax(nn.Linear(q.event_shape.numel(), 1).double())
    return kind()
