"""How much faster a training step of the semi-supervised VAE is with one draw of the class than with all classes."""

from __future__ import annotations

import time
from typing import Any

import torch

from argrad.recipes.bench import Cell, Run
from argrad.recipes.ssvae_model import Batch, SemiSupervisedVae, estimator, loss

CLASSES = (10, 30, 100)
PUBLISHED = {10: 2.0, 100: 9.9}  # on a Titan X
WAYS = ("marginalisation", "Gumbel-softmax")


def cells() -> list[Cell]:
    """One for every number of classes."""
    return [Cell("speed", f"{k} classes", PUBLISHED.get(k), {"classes": k}) for k in CLASSES]


class Fastest:
    """The shortest step of each way so far, in seconds."""

    def __init__(self) -> None:
        self.seconds = torch.full((len(WAYS),), torch.inf, dtype=torch.float64)

    def state_dict(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {"seconds": self.seconds}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self.seconds = state["seconds"]


def measure(model: SemiSupervisedVae, batch: Batch, repeats: int, run: Run) -> dict[str, float]:
    """Time training steps of both ways in turn; the fastest of each, and their ratio."""
    fastest, noise = Fastest(), run.generator(1)
    optimizer = torch.optim.Adam(model.parameters(), 1e-4)
    run.log_every = 1
    for step in run.steps(repeats + 1, fastest=fastest):
        for i, name in enumerate(WAYS):
            seconds = _step(model, batch, name, optimizer, noise)
            if step:  # the first finds the memory that the others use again
                fastest.seconds[i] = min(float(fastest.seconds[i]), seconds)
        if step:
            run.log(ratio=fastest.seconds[0] / fastest.seconds[1])
    all_, one = fastest.seconds.tolist()
    return {"value": all_ / one, "ms of marginalisation": 1e3 * all_, "ms of Gumbel-softmax": 1e3 * one}


def _step(
    model: SemiSupervisedVae,
    batch: Batch,
    name: str,
    optimizer: torch.optim.Optimizer,
    noise: torch.Generator,
) -> float:
    began = time.perf_counter()
    optimizer.zero_grad()
    loss(model, batch, estimator(name, 1.0), noise, alpha=1.0, share=1.0).backward()
    optimizer.step()
    return time.perf_counter() - began
