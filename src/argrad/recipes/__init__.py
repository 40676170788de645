"""Published experiments that one command runs, and the demo.

To add one: write a module with a `RECIPE`, and name it here.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from argrad._errors import InputError

if TYPE_CHECKING:
    from argrad.recipes.bench.recipe import Recipe

RECIPES = {
    "reinmax-vae": "argrad.recipes.reinmax_vae",
    "sbn": "argrad.recipes.sbn",
    "temperature": "argrad.recipes.temperature",
    "vae": "argrad.recipes.vae",
}  # name -> module


def find(name: str) -> Recipe:
    """The recipe of that name."""
    if name not in RECIPES:
        raise InputError(f"there is no recipe {name!r}; there are {', '.join(sorted(RECIPES))}.")
    return importlib.import_module(RECIPES[name]).RECIPE
