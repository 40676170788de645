r"""Gates by forward hooks, for models that do not go through transformers' attention interface."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from argrad.integrations.sentences._interface import add_log_gate

_VALUE_NAMES = ("value", "v", "v_proj", "v_lin", "value_proj")


class GateHooks:
    """The hooks of one model, and the gate of the call that runs now."""

    def __init__(self, mode: str) -> None:
        self.mode = mode
        self.gate: Tensor | None = None
        self.reached = 0
        self._handles: list[RemovableHandle] = []

    def install(self, model: nn.Module) -> bool:
        """Hook every layer; whether there was anything to hook."""
        found = [
            (model.get_submodule(name.rpartition(".")[0]), layer) for name, layer in _values(model)
        ]
        for attention, projection in found:
            if self.mode == "value":
                self._handles.append(projection.register_forward_hook(self._scale))
            else:
                handle = attention.register_forward_pre_hook(self._add_to_mask, with_kwargs=True)
                self._handles.append(handle)
        return bool(found)

    def remove(self) -> None:
        """Take all hooks off."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    @contextmanager
    def using(self, gate: Tensor) -> Iterator[None]:
        """This gate, for the calls inside."""
        self.gate, self.reached = gate, 0
        try:
            yield
        finally:
            self.gate = None

    def _scale(self, module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
        if self.gate is None:
            return output
        self.reached += 1
        return output * self.gate[:, :, None].to(output.dtype)

    def _add_to_mask(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        """Hand the module an attention mask that holds the gate, if it takes an additive one."""
        if self.gate is None:
            return None
        call = inspect.signature(module.forward).bind(*args, **kwargs)
        mask = call.arguments.get("attention_mask")
        if isinstance(mask, Tensor) and not (mask.is_floating_point() or mask.dtype == torch.bool):
            return None  # integers: the module itself decides what they mean
        self.reached += 1
        hidden = next(value for value in call.arguments.values() if isinstance(value, Tensor))
        call.arguments["attention_mask"] = add_log_gate(mask, self.gate, hidden.dtype)
        return call.args, call.kwargs


def _values(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """The value projections, with their names."""
    named = model.named_modules()
    return [
        (name, layer)
        for name, layer in named
        if isinstance(layer, nn.Linear) and name.rpartition(".")[2] in _VALUE_NAMES
    ]
