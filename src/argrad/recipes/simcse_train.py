"""One cell of `simcse`: train an encoder on pairs or triples of sentences, then score it on all tasks."""

from __future__ import annotations

import math
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import torch
from transformers import get_linear_schedule_with_warmup

from argrad.integrations.sentences.budget import Budget
from argrad.integrations.sentences.encoder import GatedEncoder
from argrad.integrations.sentences.evaluate import evaluate
from argrad.integrations.sentences.objective import SimCSE
from argrad.integrations.sentences.trainer import parameter_groups
from argrad.recipes import simcse_model as parts
from argrad.recipes import simcse_page as page
from argrad.recipes.bench import Cell, Run
from argrad.recipes.training import Shuffled

if TYPE_CHECKING:
    from argrad.recipes.simcse import Config

# the document's, by row
_BATCH = {"unsup-bert": 64, "unsup-roberta": 512, "sup-bert": 512, "sup-roberta": 512}
_RATE = {"unsup-bert": 3e-5, "unsup-roberta": 1e-5, "sup-bert": 5e-5, "sup-roberta": 5e-5}


def train(config: Config, cell: Cell, run: Run) -> dict[str, float]:
    """Train one encoder, then score it on all tasks."""
    if cell.settings["regime"] == page.UNTRAINED:
        scores, model = _untrained(config, cell.column, cell.settings["model"], cell.settings["tasks"])
    else:
        run.save_seconds = 60.0  # a checkpoint is some hundred megabytes
        model = made(config, cell).to(parts.device())
        fit(config, cell, model, run)
        scores = scored(config.sts, cell.settings["tasks"], model)
    page.keep(run.folder, model)
    (run.folder / "train.pt").unlink(missing_ok=True)  # large, and no longer needed
    return scores


@cache
def _untrained(
    config: Config, column: str, model: str, tasks: str
) -> tuple[dict[str, float], GatedEncoder]:
    """The same for every seed."""
    cell = Cell(page.UNTRAINED, column, settings={"model": model, "proxy": None})
    encoder = made(config, cell).to(parts.device())
    return scored(config.sts, tasks, encoder), encoder


def scored(file: str, tasks: str, model: GatedEncoder) -> dict[str, float]:
    """The columns of the table."""
    sets = parts.sets(file)
    if tasks == "stsb":
        sets = {name: sets[name] for name in ("STSB-dev", "STSB-test")}
    return evaluate(_encode(model), sets, batch_size=2048).table()


def made(config: Config, cell: Cell) -> GatedEncoder:
    """The encoder of a cell, not yet trained."""
    return parts.encoder(
        parts.WAYS[cell.column],
        cell.settings["model"],
        cell.settings["proxy"],
        layers=config.layers,
        keep_bias=config.keep_bias,
        keep=config.budget,
        max_length=config.max_length,
        head=None if config.head == "none" else config.head,
    )


def fit(config: Config, cell: Cell, model: GatedEncoder, run: Run) -> None:
    """Train it, or go on with it."""
    regime = cell.settings["regime"]
    file = config.unsup_file if regime == "unsup" else config.sup_file
    found = parts.examples(regime, file, longest=config.longest)
    batch = config.batch or _BATCH.get(cell.row, 64)
    rate = config.rate or _RATE.get(cell.row, _RATE[f"{regime}-bert"])
    steps = max(1, min(config.steps, math.floor(config.epochs * len(found) / batch)))
    budget = Budget(config.budget, config.weight) if parts.WAYS[cell.column].budget else None
    objective = SimCSE(
        model, budget, tau=config.temperature, chunk=config.chunk, max_length=config.train_length
    )
    own = {"gate": config.gate_rate} if config.gate_rate and budget is not None else {}
    groups = parameter_groups(model, rate, config.decay, own)
    optimizer = torch.optim.AdamW(groups, fused=True)
    fall = get_linear_schedule_with_warmup(optimizer, round(config.warmup * steps), steps)
    batches, noise = Shuffled(torch.arange(len(found)), batch, run.generator(1)), run.generator(2)
    best = parts.Best()
    state = {
        "objective": objective,
        "optimizer": optimizer,
        "fall": fall,
        "batches": batches,
        "noise": noise,
    }
    objective.train()
    for step in run.steps(steps, best=best, **state):
        chosen = [found[i] for i in batches.next().tolist()]
        optimizer.zero_grad()
        loss = objective.backward(_on(objective.collate(chosen)), generator=noise)
        run.log(loss=loss, **objective.metrics)
        optimizer.step()
        fall.step()
        if model.gate is not None:
            model.gate.step(len(chosen))
        if config.select_on != "last" and _is_due(step + 1, steps, config.evaluations):
            best.offer(_selected(config, model), model)
            objective.train()
    if best.kept:
        model.load_state_dict(best.kept)


def _on(inputs: dict[str, Any]) -> dict[str, Any]:
    """On the device of the model."""
    return {k: v.to(parts.device()) if isinstance(v, torch.Tensor) else v for k, v in inputs.items()}


def _is_due(step: int, steps: int, times: int) -> bool:
    return step * times // steps > (step - 1) * times // steps


def _selected(config: Config, model: GatedEncoder) -> float:
    """The score that chooses a checkpoint."""
    wanted = ("STSB-dev",) if config.select_on == "stsb-dev" else ("STSB-train", "STSB-dev")
    sets = {name: pairs for name, pairs in parts.sets(config.sts).items() if name in wanted}
    kind: Any = config.select_on
    return evaluate(_encode(model), sets, select_on=kind, batch_size=2048).selected


def _encode(model: GatedEncoder) -> Any:
    return partial(model.encode_counted, truncate=True)
