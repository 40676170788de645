"""Other libraries, each with its own optional dependency; imported when first used."""

from __future__ import annotations

import importlib
from types import ModuleType

__all__ = ["huggingface"]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> ModuleType:
    if name not in __all__:
        raise AttributeError(f"module 'argrad.integrations' has no attribute {name!r}")
    return importlib.import_module(f"argrad.integrations.{name}")
