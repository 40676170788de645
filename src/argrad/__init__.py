"""Discrete and structured random choices, trained by gradient.

The public names are listed once, in `__init__.pyi`; each is imported from its module when first used,
so that `import argrad` costs nothing and the command line answers `--help` without loading torch.
"""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

__version__ = "0.1.0"


def _read_stub() -> tuple[dict[str, str], set[str]]:
    """From the stub: public name -> module that defines it, and the public submodules."""
    names: dict[str, str] = {}
    modules: set[str] = set()
    for node in ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom) and node.module is None:
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 1:
            names |= {alias.asname or alias.name: str(node.module) for alias in node.names}
    return names, modules


_names, _modules = _read_stub()
__all__ = sorted([*_names, *_modules])  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> object:
    if name in _names:
        value = getattr(importlib.import_module(f"argrad.{_names[name]}"), name)
    elif name in _modules:
        value = importlib.import_module(f"argrad.{name}")
    else:
        raise AttributeError(f"module 'argrad' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*globals(), *__all__]
