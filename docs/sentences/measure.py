"""Which tokens learned gates drop: trains two, writes `measured.json`, and from that the page `tokens.md`.

    .venv/bin/python docs/sentences/measure.py            # trains (minutes), then writes both
    .venv/bin/python docs/sentences/measure.py --page     # writes the page from measured.json

The gates are those of `argrad reproduce simcse`, column "gate + budget", with the settings of the recipe and seed 0.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path
from typing import Any

import torch

HERE = Path(__file__).resolve().parent
FILE, PAGE = HERE / "measured.json", HERE / "tokens.md"
REGIMES = {
    "unsup": "dropout views of wikitext",
    "sup": "premises, entailments and contradictions of SNLI",
}
SHOWN = (
    "A man is playing a large flute.",
    "The man is not playing the flute.",
    "Two dogs are running through the snow, and a child watches them.",
    "The president said on Monday that the talks will go on.",
)
FREQUENT, ACROSS = 48, 3
INTRODUCTION = """\
Two gates of [`argrad reproduce simcse`](../recipes.md) with a budget of {:.0f} %, one trained without labels and one
with, each on the first four layers of MiniLM with a proxy of one layer. Nobody told them what a stop-word is. Blue
tokens are kept, red ones are dropped, and the stronger the colour the surer; a pointer on a token shows its
probability."""
TABLE = """\
How often, in per cent, each of the {} most frequent tokens of STS-B dev is kept; those that are dropped most come
first, column by column."""

NEGATION = """\
Look at `not`, which turns a sentence around: it is kept in {:.0f} % of its places without labels and in {:.0f} % with
them. Two dropout views of one sentence agree about it anyway, so nothing rewards keeping it; contradictions among the
training triples do."""


def main() -> None:
    """Train, count, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--page", action="store_true", help="only write the page again")
    if not parser.parse_args().page:
        torch.set_num_threads(1)
        FILE.write_text(json.dumps(measure(), indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page(json.loads(FILE.read_text(encoding="utf-8"))), encoding="utf-8")


def measure() -> dict[str, Any]:
    """What each gate does to sentences of ours, and to the most frequent tokens of STS-B dev."""
    from argrad.recipes import simcse_model as parts
    from argrad.recipes.simcse import RECIPE

    pairs = parts.sets("")["STSB-dev"]
    sentences = sorted({*pairs.first, *pairs.second})
    found: dict[str, Any] = {"budget": RECIPE.config.budget}
    for regime in REGIMES:
        encoder = train(regime, RECIPE.config)
        seen, kept = count(encoder, sentences)
        rates = {token: kept[token] / n for token, n in seen.most_common(FREQUENT)}
        found[regime] = {
            "kept": sum(kept.values()) / sum(seen.values()),
            "rates": rates,
            "shown": [one.html() for one in encoder.explain(SHOWN)],
        }
    return found


def train(regime: str, config: Any) -> Any:
    """The gate with a budget of one regime."""
    from transformers import get_linear_schedule_with_warmup

    from argrad.integrations.sentences.budget import Budget
    from argrad.integrations.sentences.objective import SimCSE
    from argrad.integrations.sentences.trainer import parameter_groups
    from argrad.recipes import simcse_model as parts
    from argrad.recipes import simcse_train
    from argrad.recipes.bench import Cell

    torch.manual_seed(0)
    cell = Cell(regime, parts.BUDGET, settings={"model": "minilm", "regime": regime, "proxy": None})
    encoder = simcse_train.made(config, cell)
    examples = parts.examples(regime, "", longest=config.longest)
    objective = SimCSE(
        encoder,
        Budget(config.budget, config.weight),
        tau=config.temperature,
        max_length=config.train_length,
    )
    rate = config.rate or simcse_train._RATE[f"{regime}-bert"]
    groups = parameter_groups(encoder, rate, config.decay, {"gate": config.gate_rate or rate})
    optimizer = torch.optim.AdamW(groups, fused=True)
    fall = get_linear_schedule_with_warmup(optimizer, round(config.warmup * config.steps), config.steps)
    order = torch.randperm(len(examples))
    objective.train()
    for step in range(config.steps):
        at = [int(order[(step * config.batch + i) % len(order)]) for i in range(config.batch)]
        optimizer.zero_grad()
        objective.backward(objective.collate([examples[i] for i in at]))
        optimizer.step()
        fall.step()
        encoder.gate.step(config.batch)
    return encoder.eval()


def count(encoder: Any, sentences: list[str]) -> tuple[Counter[str], Counter[str]]:
    """How often each token occurs, and how often it is kept."""
    seen: Counter[str] = Counter()
    kept: Counter[str] = Counter()
    for at in range(0, len(sentences), 64):
        batch = encoder.tokenize(sentences[at : at + 64], truncate=True)
        with torch.no_grad():
            gate, scores = encoder.gate(batch["input_ids"], batch["attention_mask"])
        for row, keep, tokens in zip(batch["input_ids"], gate > 0, scores.tokens, strict=True):
            words = encoder.tokenizer.convert_ids_to_tokens(row[tokens].tolist())
            seen.update(words)
            kept.update(word for word, k in zip(words, keep[tokens].tolist(), strict=True) if k)
    return seen, kept


def page(found: dict[str, Any]) -> str:
    """Markdown."""
    lines = [
        "<!-- written by docs/sentences/measure.py -->",
        "# What learned gates drop",
        "",
        INTRODUCTION.format(100 * found["budget"]),
        "",
    ]
    for regime, words in REGIMES.items():
        lines += [
            f"## Trained on {words}",
            "",
            f"Kept on STS-B dev: {100 * found[regime]['kept']:.0f} % of all tokens.",
            "",
        ]
        lines += [line for paragraph in found[regime]["shown"] for line in (paragraph, "")]
    lines += _table(found)
    return "\n".join(lines)


def _table(found: dict[str, Any]) -> list[str]:
    heads = "| token | unsup | sup " * ACROSS + "|"
    rows = [
        [token, *(found[r]["rates"].get(token) for r in REGIMES)] for token in found["unsup"]["rates"]
    ]
    rows.sort(key=lambda row: row[1] + row[2])
    cells = [f"`{token}` | {100 * a:.0f} | {100 * b:.0f}" for token, a, b in rows]
    cells = [cell.replace("`|`", "`\\|`") for cell in cells]
    height = -(-len(cells) // ACROSS)
    lines = [
        "## The most frequent tokens",
        "",
        TABLE.format(len(cells)),
        "",
        heads,
        "|---|---:|---:" * ACROSS + "|",
    ]
    for i in range(height):
        row = [cells[i + height * j] if i + height * j < len(cells) else " | | " for j in range(ACROSS)]
        lines.append("| " + " | ".join(row) + " |")
    unsup, sup = (100 * found[r]["rates"].get("not", 0.0) for r in REGIMES)
    return [*lines, "", NEGATION.format(unsup, sup), ""]


if __name__ == "__main__":
    main()
