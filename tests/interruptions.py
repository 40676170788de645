"""A recipe's cell, stopped in the middle and resumed, against the same cell in one go."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from argrad.recipes.bench import Cell, Recipe
from argrad.recipes.bench.run import Run


def _train(
    recipe: Recipe, config: Any, cell: Cell, folder: Path, seed: int, stop: int | None
) -> dict[str, float]:
    def report(phase: str, step: int, total: int, value: float) -> None:
        if step == stop:
            raise KeyboardInterrupt

    folder.mkdir(exist_ok=True)
    torch.manual_seed(seed)
    run = Run(folder, 0, save_seconds=0.0, log_every=1, report=report)
    return dict(recipe.train(config, cell, run))


def resumed_and_whole(
    recipe: Recipe, config: Any, cell: Cell, folder: Path, stop: int
) -> tuple[dict[str, float], dict[str, float]]:
    """The numbers of both; the resumed process begins with another state of torch's generator."""
    with pytest.raises(KeyboardInterrupt):
        _train(recipe, config, cell, folder / "stopped", 7, stop)
    resumed = _train(recipe, config, cell, folder / "stopped", 8, None)
    return resumed, _train(recipe, config, cell, folder / "whole", 7, None)
