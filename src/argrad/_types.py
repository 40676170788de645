"""Shape annotations in jaxtyping syntax, with no run-time dependency.

`Float[Tensor, "*batch n"]` reads as "a floating tensor with these dimensions". For users and type
checkers it is `Annotated[Tensor, ...]`, which costs nothing; with `ARGRAD_CHECK_SHAPES=1` (the shape
test sets it) the same annotations come from jaxtyping and beartype verifies them on every call.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, TypeAlias

import torch
from torch import Tensor

if TYPE_CHECKING:
    from typing import Annotated as Bool
    from typing import Annotated as Float
    from typing import Annotated as Int
elif os.environ.get("ARGRAD_CHECK_SHAPES"):
    from jaxtyping import Bool, Float, Int
else:
    Float = Int = Bool = Annotated

if TYPE_CHECKING:
    from argrad.random import CounterRNG

    Generator: TypeAlias = torch.Generator | CounterRNG | None
else:
    Generator = object

Shape: TypeAlias = Sequence[int]
Tau: TypeAlias = float | Tensor

__all__ = ["Bool", "Float", "Generator", "Int", "Shape", "Tau", "Tensor"]
