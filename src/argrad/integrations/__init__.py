"""Other libraries, each with its own optional dependency; imported when first used."""

from __future__ import annotations

import importlib
from types import ModuleType

from argrad._errors import ArgradError

_EXTRAS = {"arrow": "scale", "huggingface": "hf", "sentences": "hf"}
__all__ = ["arrow", "huggingface", "sentences"]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> ModuleType:
    if name not in __all__:
        raise AttributeError(f"module 'argrad.integrations' has no attribute {name!r}")
    try:
        return importlib.import_module(f"argrad.integrations.{name}")
    except ModuleNotFoundError as error:
        extra = _EXTRAS[name]
        raise ArgradError(
            f'`integrations.{name}` needs {error.name}: `pip install "argrad[{extra}]"`.'
        ) from error
