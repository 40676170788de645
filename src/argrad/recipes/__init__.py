"""Published experiments that one command runs, and the demo.

To add one: write a module with a `RECIPE`, and name it here; one of your own stays in a file of its own.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from argrad._errors import InputError

if TYPE_CHECKING:
    from argrad.recipes.bench.recipe import Recipe

RECIPES = {
    "calibrate": "argrad.recipes.calibrate",
    "connectome": "argrad.recipes.connectome",
    "counterfactual": "argrad.recipes.counterfactual",
    "gaussian-vae": "argrad.recipes.gaussian_vae",
    "jigsaw": "argrad.recipes.jigsaw",
    "l2x": "argrad.recipes.l2x",
    "listops": "argrad.recipes.listops",
    "nri-tree": "argrad.recipes.nri_tree",
    "open-set": "argrad.recipes.open_set",
    "nce-lm": "argrad.recipes.nce_lm",
    "reinforce-vs-reparam": "argrad.recipes.reinforce_vs_reparam",
    "reinmax-vae": "argrad.recipes.reinmax_vae",
    "sbn": "argrad.recipes.sbn",
    "seqgan": "argrad.recipes.seqgan",
    "simcse": "argrad.recipes.simcse",
    "simcse-gates": "argrad.recipes.simcse_gates",
    "sorting": "argrad.recipes.sorting",
    "swor": "argrad.recipes.swor",
    "ssvae": "argrad.recipes.ssvae",
    "temperature": "argrad.recipes.temperature",
    "vae": "argrad.recipes.vae",
    "word2vec": "argrad.recipes.word2vec",
}  # name -> module


def find(name: str) -> Recipe:
    """The recipe of that name, or the one in a Python file."""
    if name.endswith(".py"):
        return _in_file(Path(name).expanduser().resolve())
    if name not in RECIPES:
        known = ", ".join(sorted(RECIPES))
        raise InputError(
            f"there is no recipe {name!r}; there are {known}. One of your own is a file: my.py."
        )
    return importlib.import_module(RECIPES[name]).RECIPE


def _in_file(path: Path) -> Recipe:
    if not path.is_file():
        raise InputError(f"there is no file {path}.")
    name = f"argrad_recipe_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None  # so it is for every name that ends in .py
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    recipe = getattr(module, "RECIPE", None)
    if recipe is None:
        raise InputError(f"{path} has no RECIPE. Write `RECIPE = Recipe(...)` at its end.")
    return replace(recipe, file=str(path))
