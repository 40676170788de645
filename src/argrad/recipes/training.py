"""Small parts of a training loop that several recipes use."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value

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


def gradients(
    loss: Callable[..., Tensor], model: nn.Module, *, compiled: bool = False, pure: bool = False
) -> Callable[..., Tensor]:
    """A function of `args` that returns `loss(model, *args)` and leaves its gradient in the model's parameters.

    Args:
        loss: to be made small.
        model: its first argument.
        compiled: by `torch.compile`.
        pure: the loss changes nothing else, so that loss and gradient can be compiled as one function without an
            autograd graph between two halves, which takes half the time outside of the arithmetic.
    """
    if compiled and pure:
        return _compiled_as_one(loss, model)
    run = torch.compile(loss) if compiled else loss

    def backward(*args: Any) -> Tensor:
        value = run(model, *args)
        value.backward()
        return value.detach()

    return backward


def _compiled_as_one(loss: Callable[..., Tensor], model: nn.Module) -> Callable[..., Tensor]:
    whole = _Loss(loss, model)
    parameters: dict[str, Tensor] = dict(whole.named_parameters())

    @torch.compile
    def both(parameters: dict[str, Tensor], args: tuple[Any, ...]) -> tuple[dict[str, Tensor], Tensor]:
        return grad_and_value(lambda p: functional_call(whole, p, args))(parameters)

    @torch.no_grad()
    def backward(*args: Any) -> Tensor:
        found, value = both(parameters, args)
        for name, parameter in parameters.items():
            parameter.grad = found[name]
        return value

    return backward


class _Loss(nn.Module):
    """For `functional_call`, which knows `forward` alone."""

    def __init__(self, loss: Callable[..., Tensor], model: nn.Module) -> None:
        super().__init__()
        self.loss, self.model = loss, model

    def forward(self, *args: Any) -> Tensor:
        """The loss of the model."""
        return self.loss(self.model, *args)


class Adam(torch.optim.Adam):
    """Torch's fused Adam, bit for bit, without most of the time that torch takes to prepare a step.

    That is 50 us, half as long as the update of 400,000 parameters takes.

    Args:
        parameters: in one group.
        rate: of learning.
    """

    def __init__(self, parameters: Iterable[Tensor], rate: float) -> None:
        super().__init__(parameters, rate, fused=True)
        self._kept: tuple[list[Tensor], ...] | None = None

    @torch.no_grad()
    def step(self) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Move the parameters that have a gradient."""
        (group,) = self.param_groups
        gradients = [p.grad for p in group["params"]]
        if self._kept is None or any(g is None for g in gradients):
            super().step()
            self._kept = self._what_is_kept()
            return
        means, squares, steps = self._kept
        beta1, beta2 = group["betas"]
        torch._foreach_add_(steps, 1)  # pyright: ignore[reportPrivateImportUsage]
        torch._fused_adam_(  # pyright: ignore[reportPrivateImportUsage]
            group["params"],
            gradients,  # pyright: ignore[reportArgumentType]
            means,
            squares,
            [],
            steps,
            lr=group["lr"],
            beta1=beta1,
            beta2=beta2,
            weight_decay=group["weight_decay"],
            eps=group["eps"],
            amsgrad=False,
            maximize=False,
        )

    def _what_is_kept(self) -> tuple[list[Tensor], ...] | None:
        """Of every parameter; nothing before all have had a gradient."""
        states = [self.state[p] for p in self.param_groups[0]["params"]]
        if not all(states):
            return None
        return tuple([state[name] for state in states] for name in ("exp_avg", "exp_avg_sq", "step"))

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from there."""
        super().load_state_dict(state_dict)
        self._kept = None


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
