"""Numbers that must not change; after a change on purpose, `python tests/golden.py --write` keeps the new ones."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from torch import Tensor

import argrad as ag

FILE = Path(__file__).with_name("golden.json")
RNG = ag.CounterRNG(7)
F64 = torch.float64


def scores(*shape: int) -> Tensor:
    """Fixed numbers without any generator: torch's own streams may change between versions."""
    size = torch.Size(shape).numel()
    return (torch.sin(torch.arange(1, size + 1, dtype=F64) * 1.7) * 2.0).reshape(shape)


def gradient(structure: ag.Structure, *shape: int) -> Tensor:
    x = scores(*shape).requires_grad_()
    weights = torch.cos(torch.arange(x.numel(), dtype=F64)).reshape(shape)
    (structure.relax(x, 0.7) * weights).sum().backward()
    assert x.grad is not None
    return x.grad


def estimated(estimator: ag.Estimator) -> Tensor:
    x = scores(2, 4).requires_grad_()
    q = ag.Gibbs(ag.OneHot(), x)
    estimator(lambda z: (z * scores(4)).sum(-1).exp(), q, generator=RNG).sum().backward()
    assert x.grad is not None
    return x.grad


def streamed() -> Tensor:
    stream = ag.GumbelTopKStream(5, 3).update(10**9, scores(1000))
    return stream.result().perturbed


def searched() -> Tensor:
    table = scores(5, 4)

    def step(token: Tensor | None, state: Tensor) -> tuple[Tensor, Tensor]:
        state = state if token is None else token
        return table[state], state

    start = torch.tensor([4, 4])
    return ag.stochastic_beam_search(step, start, 3, eos=0, max_len=4, generator=RNG).log_prob


CASES = {
    "noise gumbel": lambda: RNG.gumbel(2, 3, dtype=F64),
    "noise normal": lambda: ag.random.normal((2, 3), dtype=F64, generator=RNG),
    "noise logistic float32": lambda: ag.random.logistic((2, 3), generator=RNG).double(),
    "fold and shift": lambda: RNG.fold(3, 4).shift(rows=5, columns=2).uniform(2, 2, dtype=F64),
    "gumbel_softmax": lambda: ag.gumbel_softmax(scores(2, 5), 0.5, generator=RNG),
    "gumbel_topk": lambda: ag.gumbel_topk(scores(2, 6), 3, generator=RNG).perturbed,
    "gumbel_posterior": lambda: ag.gumbel_posterior(scores(2, 4), torch.tensor([1, 3]), generator=RNG),
    "linear_gumbel_topk": lambda: (
        ag.linear_gumbel_topk(scores(2, 3), scores(50, 3), 4, generator=RNG).perturbed
    ),
    "OneHot entropy": lambda: ag.OneHot().entropy(scores(3, 5)),
    "Subset marginals": lambda: ag.Subset(2).marginals(scores(2, 5)),
    "ChainSubset log_partition": lambda: ag.ChainSubset(2).log_partition(scores(2, 9)),
    "Chain marginals": lambda: ag.Chain().marginals(scores(3, 2, 2)),
    "SpanningTree marginals": lambda: ag.SpanningTree().marginals(scores(4, 4)),
    "Arborescence log_partition": lambda: ag.Arborescence().log_partition(scores(2, 4, 4)),
    "Arborescence sample": lambda: ag.Arborescence().sample(scores(4, 4), (3,), generator=RNG),
    "Permutation relax gradient": lambda: gradient(ag.Permutation(), 4, 4),
    "Subset relax gradient": lambda: gradient(ag.Subset(2), 5),
    "SpanningTree relax gradient": lambda: gradient(ag.SpanningTree(), 4, 4),
    "ReinMax gradient": lambda: estimated(ag.ReinMax()),
    "LeaveOneOut gradient": lambda: estimated(ag.LeaveOneOut(4)),
    "Rebar gradient": lambda: estimated(ag.Rebar().double()),
    "GumbelTopKStream": streamed,
    "stochastic_beam_search": searched,
    "log_prob_set": lambda: ag.log_prob_set(scores(2, 6).log_softmax(-1)[..., :3]),
    "neuralsort": lambda: ag.neuralsort(scores(4), 0.5),
}


def values() -> dict[str, list[float]]:
    """What they are now."""
    return {name: case().detach().flatten().tolist() for name, case in CASES.items()}


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        FILE.write_text(json.dumps(values(), indent=1) + "\n", encoding="utf-8")
