r"""Gated attention functions for transformers' `AttentionInterface`, on top of whatever kernel a model uses."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

_PREFIX = "argrad_"
_watched: ContextVar[list[nn.Module] | None] = ContextVar("argrad_gated_layers", default=None)


def base_name(model: PreTrainedModel) -> str:
    """The attention that `model` uses, under a gate if there is one."""
    name = model.config._attn_implementation or "eager"
    return name.split("_", 2)[2] if name.startswith(_PREFIX) else name


def gated_name(base: str, mode: str) -> str | None:
    """Register `base` with a gate and return its name; None where there is none."""
    if mode == "logit" and base not in ("sdpa", "eager"):  # the others take no additive mask
        return None
    name = f"{_PREFIX}{mode}_{base}"
    if name not in ALL_ATTENTION_FUNCTIONS:
        AttentionInterface.register(name, functools.partial(_GATES[mode], base))
        # without a mask function of the same name transformers builds no padding mask at all
        AttentionMaskInterface.register(name, ALL_MASK_ATTENTION_FUNCTIONS[base])
    return name


@contextmanager
def watch() -> Iterator[list[nn.Module]]:
    """The attention modules that a gate reaches, once for each call."""
    seen: list[nn.Module] = []
    token = _watched.set(seen)
    try:
        yield seen
    finally:
        _watched.reset(token)


def log_gate(gate: Tensor, dtype: torch.dtype) -> Tensor:
    r"""$\log g$, finite: exactly 0 at 1, and low enough at 0.

    With a gradient the floor is higher: $\partial/\partial g$ of attention at $g = 0$ is finite (its $1/g$
    meets a probability proportional to $g$), but would be $\infty \cdot 0$ in floating point.
    """
    floor = 1e-6 if gate.requires_grad and torch.is_grad_enabled() else 1e-30
    gate = gate.to(torch.float32)
    return torch.log(gate + floor * (1 - gate)).to(dtype)


def add_log_gate(mask: Tensor | None, gate: Tensor, dtype: torch.dtype) -> Tensor:
    """An additive attention mask, `(batch, 1, 1 or queries, keys)`, with $\\log g$ in it."""
    bias = log_gate(gate, dtype)[:, None, None, :]
    if mask is None:
        return bias
    if mask.dtype == torch.bool:
        return torch.where(mask, bias, torch.finfo(dtype).min)
    return mask + bias


def _value_gated(
    base: str,
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    token_gate: Tensor | None = None,
    **options: Any,
) -> tuple[Tensor, Tensor | None]:
    if token_gate is not None:
        _note(module)
        value = value * token_gate[:, None, :, None].to(value.dtype)
    return _attend(base, module)(module, query, key, value, attention_mask, **options)


def _logit_gated(
    base: str,
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    token_gate: Tensor | None = None,
    **options: Any,
) -> tuple[Tensor, Tensor | None]:
    if token_gate is not None:
        _note(module)
        attention_mask = add_log_gate(attention_mask, token_gate, query.dtype)
    return _attend(base, module)(module, query, key, value, attention_mask, **options)


_GATES = {"value": _value_gated, "logit": _logit_gated}


def _note(module: nn.Module) -> None:
    seen = _watched.get()
    if seen is not None:
        seen.append(module)


def _attend(base: str, module: nn.Module) -> Callable[..., tuple[Tensor, Tensor | None]]:
    if base != "eager":
        return ALL_ATTENTION_FUNCTIONS[base]
    return sys.modules[type(module).__module__].eager_attention_forward  # each model file has its own
