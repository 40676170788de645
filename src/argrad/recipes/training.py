"""Small parts of a training loop that several recipes use."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from argrad.recipes.bench import ranks


class Shuffled:
    """Batches of rows, a new random order each time all were seen; its place is part of a checkpoint.

    Several processes (`torchrun`) share the order and take a part of each batch.

    Args:
        rows: the data, first dimension the examples.
        batch: rows a batch; the last, smaller batch of an order is left out.
        generator: of the orders.
    """

    def __init__(
        self, rows: Tensor | tuple[Tensor, ...], batch: int, generator: torch.Generator
    ) -> None:
        self._rows = rows if isinstance(rows, tuple) else (rows,)
        self._single = not isinstance(rows, tuple)
        self._batch = min(batch, len(self._rows[0]))
        self._generator = generator
        self._order, self._next = torch.empty(0, dtype=torch.int64), 0

    def next(self) -> Any:
        """The next batch: a tensor, or a tuple of them if there are several."""
        if self._next + self._batch > len(self._order):
            self._order = ranks.as_on_rank_0(
                torch.randperm(len(self._rows[0]), generator=self._generator)
            )
            self._next = 0
        chosen = self._order[self._next : self._next + self._batch][ranks.share(self._batch)]
        self._next += self._batch
        found = tuple(rows[chosen] for rows in self._rows)
        return found[0] if self._single else found

    def state_dict(self) -> dict[str, Any]:
        """The order, the place in it, and the generator."""
        return {"order": self._order, "next": self._next, "generator": self._generator.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self._order, self._next = state["order"], state["next"]
        self._generator.set_state(state["generator"])


class Decay:
    """A learning rate that stays, then falls linearly to `final` of itself; a function of the step, so no state.

    Args:
        optimizer: whose rate it is.
        steps: of the whole run.
        begin: share of the run after which it falls.
        final: of the first rate.
    """

    def __init__(
        self, optimizer: torch.optim.Optimizer, steps: int, *, begin: float = 0.5, final: float = 0.1
    ) -> None:
        self._optimizer, self._steps, self._begin, self._final = optimizer, steps, begin, final
        self._rates = [group["lr"] for group in optimizer.param_groups]

    def step(self, step: int) -> None:
        """Set the rate of step `step` and let the optimizer take it."""
        through = step / max(self._steps, 1)
        fall = max(0.0, (through - self._begin) / (1 - self._begin))
        for group, rate in zip(self._optimizer.param_groups, self._rates, strict=True):
            group["lr"] = rate * (1 - (1 - self._final) * fall)
        self._optimizer.step()
