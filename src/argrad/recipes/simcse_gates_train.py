"""One cell of `simcse-gates`: a gate in front of a frozen encoder."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from transformers import get_linear_schedule_with_warmup

import argrad as ag
from argrad.integrations.sentences.budget import Budget
from argrad.integrations.sentences.encoder import Encoded, GatedEncoder
from argrad.integrations.sentences.evaluate import evaluate
from argrad.recipes import simcse_model as parts
from argrad.recipes.bench import Cell, Run
from argrad.recipes.simcse_gates import RULES
from argrad.recipes.training import Shuffled

if TYPE_CHECKING:
    from argrad.recipes.simcse_gates import Config

ESTIMATORS: dict[str, Any] = {
    "soft Gumbel-softmax": ag.Relaxed,
    "straight-through Gumbel": ag.GumbelST,
    "straight-through": ag.StraightThrough,
    "ReinMax": ag.ReinMax,
    "leave-one-out": partial(ag.LeaveOneOut, num_samples=4),
    "hard concrete": ag.HardConcrete,
    "top-k": ag.Relaxed,
}


def train(config: Config, cell: Cell, run: Run) -> dict[str, float]:
    """Train one gate; score the encoder behind it."""
    model = made(config, cell).to(parts.device())
    if cell.column not in RULES:
        fit(config, cell, model, run)
    sets = {"STSB-test": parts.sets(config.sts)["STSB-test"]}
    scores = evaluate(partial(model.encode_counted, truncate=True), sets, batch_size=2048)
    (run.folder / "train.pt").unlink(missing_ok=True)
    return scores.table()


def made(config: Config, cell: Cell) -> GatedEncoder:
    """A frozen encoder with the gate of the cell, which deletes tokens."""
    shared: dict[str, Any] = {"layers": None, "mode": "logit", "max_length": config.max_length}
    shared |= {"keep": cell.settings["keep"], "keep_bias": config.keep_bias}
    way = parts.WAYS.get(cell.column)
    if way is None:
        gate: dict[str, Any] = {"special_tokens": "gate", "estimator": ESTIMATORS[cell.column]()}
        if cell.column == "top-k":
            gate["k"] = cell.settings["keep"]
        way = parts.Way(gate=gate)
    model = parts.encoder(way, config.model, None, **shared)
    model.backbone.requires_grad_(False)
    return model


def fit(config: Config, cell: Cell, model: GatedEncoder, run: Run) -> None:
    """Train the gate, or go on with it."""
    found = sorted({s for e in parts.examples("sup", config.file, longest=0) for s in e})
    budget = None if cell.column == "top-k" else Budget(cell.settings["keep"], config.weight)
    assert model.gate is not None
    optimizer = torch.optim.AdamW(model.gate.parameters(), config.rate, weight_decay=0.0, fused=True)
    fall = get_linear_schedule_with_warmup(optimizer, round(0.06 * config.steps), config.steps)
    rows = Shuffled(torch.arange(len(found)), config.batch, run.generator(1))
    noise = run.generator(2)
    state = {"gate": model.gate, "optimizer": optimizer, "fall": fall, "rows": rows, "noise": noise}
    model.train()
    model.backbone.eval()  # what is frozen drops nothing out
    for _ in run.steps(config.steps, **state):
        texts = [found[i] for i in rows.next().tolist()]
        distance, encoded = distilled(model, texts, noise)
        kept = encoded.kept
        assert kept is not None
        optimizer.zero_grad()
        (distance if budget is None else distance + budget(kept)).backward()
        optimizer.step()
        fall.step()
        model.gate.step(len(texts))
        run.log(distance=distance, kept=kept)


def distilled(model: GatedEncoder, texts: list[str], noise: torch.Generator) -> tuple[Tensor, Encoded]:
    """How far gated embeddings are from those of whole sentences, 1 - cosine, with the estimator's gradient."""
    inputs = model.tokenize(texts, truncate=True)
    mask = inputs["attention_mask"]
    with torch.no_grad():
        whole = model(inputs["input_ids"], mask, gate=mask.float()).embedding

    def cost(embedding: Tensor) -> Tensor:
        return 1 - torch.cosine_similarity(embedding, whole)

    return model.expected_loss(inputs, cost, per_row=True, generator=noise)
