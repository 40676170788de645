"""The state of a model: tensors in tuples, lists, dictionaries, with the rows first."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.utils import _pytree as pytree

from argrad._errors import InputError


def select_rows(state: Any, index: Tensor) -> Any:
    """`index_select(0, index)` on every tensor of `state`; numbers and other objects stay as they are."""

    def select(x: object) -> object:
        if not isinstance(x, Tensor) or x.dim() == 0:
            return x
        try:
            return x.index_select(0, index)
        except (IndexError, RuntimeError):
            raise InputError(
                f"A tensor of the state has shape {tuple(x.shape)}, which has no {int(index.max()) + 1} "
                "rows in its first dimension. Put the batch first, or pass "
                "`reorder=lambda state, index: ...` (an LSTM's state: `h.index_select(1, index)`)."
            ) from None

    return pytree.tree_map(select, state)
