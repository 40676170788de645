"""Write the tables of results and speed in README.md from the files of real runs: `python docs/readme.py`.

Results come from `docs/results/*.json`, speed from `benchmarks/results/*.json`. Which lines are shown is decided here,
before anyone sees the numbers of the next run.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
README, RESULTS, SPEED = ROOT / "README.md", ROOT / "docs" / "results", ROOT / "benchmarks" / "results"
BLOCK = re.compile(r"(<!-- written: (\w+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)

# recipe, row, column, what it is
SHOWN = (
    ("vae", "categorical", "Gumbel-softmax", "VAE, 20 × 10 latents, Gumbel-softmax: nats"),
    ("sbn", "categorical", "Gumbel-softmax", "Structured output, Gumbel-softmax: nats"),
    ("reinmax-vae", "8x4", "ReinMax", "VAE, 8 × 4 latents, ReinMax: nats (training)"),
    ("ssvae", "accuracy", "Gumbel-softmax", "Semi-supervised, 100 labels: accuracy, %"),
    ("nri-tree", "T = 10", "Spanning tree", "Latent spanning trees: edge precision, %"),
    ("listops", "", "Arborescence (Gumbel)", "Latent parse trees: accuracy, %"),
    ("sorting", "N = 120", "Gumbel-Sinkhorn", "Sorting 120 numbers: share of lists not right"),
)
# topic, name of the line; ours may be slower
TIMED = (
    ("gumbel", "gumbel_softmax fwd+bwd (4096, 128)"),
    ("gumbel", "gumbel_softmax fwd+bwd (32, 10)"),
    ("gumbel", "gumbel_max (64, 50000)"),
    ("gumbel", "gumbel_topk (64, 50000), k=64"),
    ("streams", "linear_gumbel_topk 2048 x 50000, d=128, k=1: memory"),
    ("structures", "sparsemax fwd+bwd (4096, 128)"),
    ("structures", "chain_marginals fwd+bwd (64, 49, 20, 20)"),
    ("structures", "spanning_tree_marginals fwd+bwd (128, 50, 50)"),
    ("recipes", "categorical VAE training step, batch 100"),
    ("sequences", "stochastic beam search, GPT-2 of 2 layers, batch 4, k = 8, 32 tokens"),
)


def results() -> str:
    lines = ["| published experiment | published | here | command |", "|---|--:|--:|---|"]
    for recipe, row, column, about in SHOWN:
        document = _read(RESULTS / f"{recipe}.json")
        cells = document["cells"] if document else []
        for cell in (c for c in cells if (c["row"], c["column"]) == (row, column)):
            digits = 2 if cell["published"] < 1 else 1
            ours = f"{cell['mean']:.{digits}f}"
            command = f"`argrad reproduce {recipe}`"
            lines.append(f"| {about} | {cell['published']:.{digits}f} | {ours} | {command} |")
    return "\n".join(lines)


def speed() -> str:
    lines = ["| one thread | other | here | times |", "|---|--:|--:|--:|"]
    machine: dict[str, Any] = {}
    for topic, name in TIMED:
        document = _read(SPEED / f"{topic}.json")
        for r in (r for r in (document or {"results": []})["results"] if r["name"] == name):
            if r["threads"] == 1 and r.get("speedup"):
                times = [_time(r[who]["best"], r["unit"]) for who in ("peer", "ours")]
                peer = r["peer_name"].replace("|", r"\|")
                lines.append(f"| {name}, beside `{peer}` | {' | '.join(times)} | {r['speedup']:.1f}× |")
                machine = document["machine"] if document else machine
    if machine:
        about = f"{machine['cpu']}, torch {machine['torch']}, {machine['date'][:10]}"
        lines += ["", f"*Best times, ours and theirs in turns in one run, by `make bench`: {about}.*"]
    return "\n".join(lines)


def _time(value: float, unit: str) -> str:
    """Times are kept in seconds, memory in MB."""
    if unit == "MB":
        return f"{value:.0f} MB"
    return f"{value * 1e3:.1f} ms" if value >= 1e-3 else f"{value * 1e6:.0f} µs"


def _read(path: Path) -> dict[str, Any] | None:
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


TABLES = {"results": results, "speed": speed}


def filled(text: str) -> str:
    """The README with its tables brought up to date."""
    return BLOCK.sub(lambda m: f"{m[1]}{TABLES[m[2]]()}\n{m[4]}", text)


if __name__ == "__main__":
    README.write_text(filled(README.read_text(encoding="utf-8")), encoding="utf-8")
