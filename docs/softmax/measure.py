"""Measure the numbers of these pages, and write them into their tables.

    .venv/bin/python docs/softmax/measure.py                # measure (minutes), then write
    .venv/bin/python docs/softmax/measure.py noise          # measure one table, then write
    .venv/bin/python docs/softmax/measure.py --write-only   # put measured.json into the pages again

A table stands between `<!-- softmax: NAME -->` and `<!-- end -->`. The peers of `temperatures` live in an environment
of their own, which `benchmarks/run.sh` makes; `open_set` and `gan` come from `docs/results/open-set.json`.
"""

from __future__ import annotations

import json
import re
import statistics
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import argrad as ag
from argrad import reparam

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
RESULTS = HERE / "measured.json"
BLOCK = re.compile(r"(<!-- softmax: (\w+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
Row = dict[str, Any]

# ---- temperatures: who finds the optimum? ------------------------------------------------------------


def measure_temperatures() -> list[Row]:
    command = [str(ROOT / "benchmarks" / "run.sh"), "-m", "benchmarks.temperatures"]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def temperatures_table(rows: list[Row]) -> list[str]:
    peers = [name for name, value in rows[0].items() if isinstance(value, dict)]
    versions = {p: rows[0][p]["version"] for p in peers}
    heads = [f"{p} {versions[p]}" if versions[p] else p for p in peers]
    lines = [f"| labels | dtype | {' | '.join(heads)} |", "|---|---|" + "--:|" * len(peers)]
    for row in rows:
        cells = [_fitted(row[p]) for p in peers]
        lines.append(f"| {row['case']} | {row['dtype']} | {' | '.join(cells)} |")
    return lines


def _fitted(cell: Row) -> str:
    """The temperature; marked where it loses more than a thousandth of a nat, or is no temperature."""
    T = float(cell["T"])
    text = {0.0: "0", float("inf"): "∞"}.get(T, f"{T:.4g}").replace("-", "−")
    wrong = float(cell["loss"]) > 1e-3 or T < 0 or T != T
    return f"**{text}** ✗" if wrong else text


# ---- structures: what can 500 samples tell? ------------------------------------------------------------


def measure_structures() -> list[Row]:
    """Forty sets of 500 observed objects, at temperature 2.5."""
    rows = []
    for name, structure, event in (
        ("2 of 6", ag.Subset(2), (6,)),
        ("spanning trees on 5 nodes", ag.SpanningTree(), (5, 5)),
        ("arborescences on 5 nodes", ag.Arborescence(), (5, 5)),
        ("6 bits", ag.Bits(), (6,)),
    ):
        g = torch.Generator().manual_seed(0)
        scores = 5 * torch.randn(40, 500, *event, generator=g, dtype=torch.float64)
        seen = structure.sample(scores / 2.5, generator=g)
        fit = ag.calibrate_structure(structure, scores, seen)
        gap = fit.temperature / 2.5 - 1
        rows.append(
            {
                "structure": name,
                "mean": fit.temperature.mean().item(),
                "spread": gap.std().item(),
                "stated": (fit.standard_error / 2.5).mean().item(),
                "near": (gap.abs() < 0.03).double().mean().item(),
            }
        )
    return rows


def structures_table(rows: list[Row]) -> list[str]:
    lines = [
        "| objects | mean of the fits | spread of one fit | its stated standard error | within 3 % |",
        "|---|--:|--:|--:|--:|",
    ]
    return lines + [
        f"| {r['structure']} | {r['mean']:.3f} | {100 * r['spread']:.1f} % | {100 * r['stated']:.1f} % "
        f"| {100 * r['near']:.0f} % of fits |"
        for r in rows
    ]


# ---- noise: what arranged noise saves ------------------------------------------------------------------

LAWS: dict[str, tuple[Callable[..., Any], tuple[float, float]]] = {
    "Normal": (reparam.Normal, (1.0, 0.7)),
    "BoxMuller": (reparam.BoxMuller, (1.0, 0.7)),
    "LogNormal": (reparam.LogNormal, (0.3, 0.4)),
    "Laplace": (reparam.Laplace, (1.0, 0.7)),
    "LogRatioLaplace": (reparam.LogRatioLaplace, (1.0, 0.7)),
    "Logistic": (reparam.Logistic, (1.0, 0.7)),
    "Gumbel": (reparam.Gumbel, (1.0, 0.7)),
    "Exponential": (lambda a, b: reparam.Exponential(a * b), (0.7, 2.0)),
    "Weibull": (reparam.Weibull, (1.4, 2.2)),
    "InverseGamma": (reparam.InverseGamma, (6.0, 2.0)),
    "Kumaraswamy": (reparam.Kumaraswamy, (1.7, 2.4)),
}
KINDS = ("antithetic", "stratified", "sobol")
DRAWS, REPEATS = 64, 500


def measure_noise() -> list[Row]:
    """Variance of the gradient of E z^2 for both parameters, from 64 draws, beside independent noise."""
    rows = []
    for name, (make, theta) in LAWS.items():
        iid = _variance(make, theta, "iid")
        row: Row = {"law": name}
        for kind in KINDS:
            ratio = iid / _variance(make, theta, kind).clamp(min=1e-300)
            row[kind] = ratio.tolist()
        rows.append(row)
        print(row, flush=True)
    return rows


def _variance(make: Callable[..., Any], theta: tuple[float, float], kind: str) -> Tensor:
    g = torch.Generator().manual_seed(0)
    values = torch.tensor(theta, dtype=torch.float64)
    one = make(*values)
    eps = torch.stack([one.noise((DRAWS,), kind=kind, generator=g) for _ in range(REPEATS)], 1)
    leaf = values.repeat(REPEATS, 1).requires_grad_()
    cost = make(*leaf.unbind(-1)).transform(eps).square().mean(0)
    return torch.autograd.grad(cost.sum(), leaf)[0].var(0)


def noise_table(rows: list[Row]) -> list[str]:
    heads = " | ".join(f"{kind}: first, second" for kind in KINDS)
    lines = [f"| law | {heads} |", "|---|" + "--:|" * len(KINDS)]
    for r in rows:
        cells = [", ".join(_times(x) for x in r[kind]) for kind in KINDS]
        lines.append(f"| `{r['law']}` | {' | '.join(cells)} |")
    return lines


def _times(ratio: float) -> str:
    return "exact" if ratio > 1e12 else f"{ratio:.0f}×" if ratio >= 9.5 else f"{ratio:.1f}×"


# ---- open sets: from the results of the recipe ----------------------------------------------------------


def measure_open_set() -> list[Row]:
    """The cells of a real run: `argrad reproduce open-set --seeds 3`."""
    said = json.loads((ROOT / "docs" / "results" / "open-set.json").read_text())
    return [{k: c[k] for k in ("row", "column", "metrics")} for c in said["cells"]]


def open_set_table(rows: list[Row]) -> list[str]:
    kinds = list(dict.fromkeys(r["row"] for r in rows))
    lines = [f"| loss and outliers | {' | '.join(kinds)} |", "|---|" + "--:|" * len(kinds)]
    for column in dict.fromkeys(r["column"] for r in rows):
        cells = [_mean(rows, kind, column, "AUROC") for kind in kinds]
        lines.append(f"| {column} | {' | '.join(cells)} |")
    return lines


def gan_table(rows: list[Row]) -> list[str]:
    names = ("AUROC", "AUROC, box of 20", "mean confidence")
    lines = ["| on the toy | large square | small square | mean confidence |", "|---|--:|--:|--:|"]
    for column in (
        "cross-entropy",
        "kl GAN",
        "kl GAN no pull-away",
        "reject GAN",
        "kl GAN after shell",
        "kl shell",
    ):
        cells = [_mean(rows, "toy", column, name) for name in names]
        lines.append(f"| {column} | {' | '.join(cells)} |")
    return lines


def _mean(rows: list[Row], row: str, column: str, metric: str) -> str:
    values = [r["metrics"][metric] for r in rows if (r["row"], r["column"]) == (row, column)]
    if not values:
        return "–"
    text = f"{statistics.fmean(values[0]):.1f}"
    return text if len(values[0]) < 2 else f"{text} ± {statistics.stdev(values[0]):.1f}"


# ---- pages -----------------------------------------------------------------------------------------

MEASURE = {
    "temperatures": measure_temperatures,
    "structures": measure_structures,
    "noise": measure_noise,
    "open_set": measure_open_set,
    "gan": measure_open_set,
}
TABLE = {
    "temperatures": temperatures_table,
    "structures": structures_table,
    "noise": noise_table,
    "open_set": open_set_table,
    "gan": gan_table,
}


def block(name: str, results: dict[str, Any]) -> str:
    entry = results[name]
    source = f"argrad {entry['argrad']}, torch {entry['torch']}, CPU, {entry['date']}"
    note = f"*Measured by `docs/softmax/measure.py {name}`: {source}.*"
    return "\n".join([*TABLE[name](entry["rows"]), "", note, ""])


def filled(text: str, results: dict[str, Any]) -> str:
    """A page with its tables brought up to date."""
    return BLOCK.sub(lambda m: m[1] + block(m[2], results) + m[4], text)


def main(arguments: list[str]) -> None:
    torch.set_num_threads(1)
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    names = [] if arguments == ["--write-only"] else arguments or list(MEASURE)
    for name in names:
        today = datetime.now(UTC).date().isoformat()
        about = {"argrad": ag.__version__, "torch": torch.__version__.split("+")[0], "date": today}
        results[name] = {**about, "rows": MEASURE[name]()}
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    for page in HERE.glob("*.md"):
        page.write_text(filled(page.read_text(encoding="utf-8"), results), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
