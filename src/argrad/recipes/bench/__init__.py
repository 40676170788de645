"""What all recipes share: options, one training run that can be killed, the plan, the results and their page.

A recipe is a `Recipe` in a module of its own; `argrad.recipes.RECIPES` names the modules. It says which cells its
table has and how one of them is trained; everything else is here:

- `options.py`, `values.py`: a frozen dataclass is the configuration and the command line;
- `run.py`: `for step in run.steps(...)`: progress, log, checkpoints, resuming;
- `log.py`, `checkpoint.py`: the JSONL log; what a run goes on from;
- `ranks.py`: several processes that train one model, under `torchrun`;
- `jobs.py`, `workers.py`, `worker.py`: a cell and a seed in a folder, several at once in processes;
- `summary.py`, `page.py`: ours beside the published number, as JSON and as HTML;
- `reproduce.py`: all of it in order, behind `argrad reproduce`.
"""

from argrad.recipes.bench.options import option
from argrad.recipes.bench.recipe import Cell, Claim, Recipe
from argrad.recipes.bench.run import Run
from argrad.recipes.bench.summary import CellResult, Summary

__all__ = ["Cell", "CellResult", "Claim", "Recipe", "Run", "Summary", "option"]
