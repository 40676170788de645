"""Measure relaxations against each other, and write the tables of `relaxation.md`.

    .venv/bin/python docs/choose/measure.py                # measure (some minutes of one core), then write
    .venv/bin/python docs/choose/measure.py --write-only   # put measured.json into the page again

A temperature of 1 means another hardness for each regularizer, so each is measured at many temperatures, and the table
has its best. Each problem is a batch of eight random instances with scores and weights of their own.
"""

from __future__ import annotations

import json
import math
import re
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import argrad as ag

HERE = Path(__file__).resolve().parent
RESULTS, PAGE = HERE / "measured.json", HERE / "relaxation.md"
BLOCK = re.compile(r"(<!-- relaxations: (\w+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
TAUS = (16.0, 11.0, 8.0, 5.6, 4.0, 2.8, 2.0, 1.4, 1.0, 0.7, 0.5, 0.35, 0.25, 0.18, 0.12, 0.08)
INSTANCES, REPLICATES, WIDTH = 8, 6000, 8
BUDGETS = (8, 1000)  # evaluations of f behind one update
F64 = torch.float64

Row = dict[str, Any]


def _net(g: torch.Generator, n: int) -> Callable[[Tensor], Tensor]:
    w = torch.randn(INSTANCES, n, WIDTH, dtype=F64, generator=g)
    v = torch.randn(INSTANCES, WIDTH, dtype=F64, generator=g)
    return lambda x: (torch.tanh(torch.einsum("...bn,bnh->...bh", x, w)) * v).sum(-1)


def _problem(structure: ag.Structure, *event: int) -> tuple[Any, Callable[[Tensor], Tensor]]:
    g = torch.Generator().manual_seed(5)
    scores = torch.randn(INSTANCES, *event, dtype=F64, generator=g)
    cost = _net(g, math.prod(event))
    return ag.Perturbed(structure, scores), lambda z: cost(z.flatten(-len(event)))


SMOOTH = (ag.Entropy(), ag.Tsallis(1.5), ag.Euclidean(), ag.BinaryEntropy())
PROBLEMS = {
    "one of 10": (ag.OneHot(), (10,), SMOOTH),
    "8 bits": (ag.Bits(), (8,), (ag.BinaryEntropy(), ag.Euclidean())),
    "3 of 8": (ag.Subset(3), (8,), (ag.ExponentialFamily(), *SMOOTH, ag.SuccessiveSoftmax())),
    "order of 4": (ag.Permutation(), (4, 4), (ag.Entropy(), ag.Euclidean())),
}


def measure_errors() -> list[Row]:
    """For each problem and relaxation: bias and spread at every temperature."""
    rows = []
    for name, (structure, event, regularizers) in PROBLEMS.items():
        q, cost = _problem(structure, *event)
        size = _size(q, cost)
        for regularizer in regularizers:
            ways = {f"{tau:g}": ag.Relaxed(tau, regularizer=regularizer) for tau in TAUS}
            g = torch.Generator().manual_seed(6)
            report = ag.diagnose(cost, q, ways, replicates=REPLICATES, generator=g)
            bias = [r.relative_bias if r.verdict == "biased" else 0.0 for r in report.rows]
            spread = [math.sqrt(r.variance) / size for r in report.rows]
            row = {"problem": name, "regularizer": repr(regularizer), "bias": bias, "spread": spread}
            rows.append({**row, "oracle": report.oracle, "oracle_error": report.oracle_error})
            print(name, regularizer, [round(e, 2) for e in _best(rows[-1])[0]], flush=True)
    return rows


def _size(q: Any, cost: Callable[[Tensor], Tensor]) -> float:
    """Length of the exact gradient over all instances (by a long leave-one-out run where there is no sum)."""
    g = torch.Generator().manual_seed(7)
    if ag.Exact().works_with(q):
        return ag.Exact().evaluate(cost, q).scores_grad.norm().item()
    runs = [ag.LeaveOneOut(2000).evaluate(cost, q, generator=g).scores_grad for _ in range(20)]
    return torch.stack(runs).mean(0).norm().item()


def _best(row: Row) -> tuple[list[float], list[float]]:
    """The least error at each budget, and the temperature that has it."""
    errors, taus = [], []
    for budget in BUDGETS:
        pairs = zip(row["bias"], row["spread"], strict=True)
        error = [math.sqrt(b**2 + s**2 / budget) for b, s in pairs]
        errors.append(min(error))
        taus.append(TAUS[error.index(min(error))])
    return errors, taus


def errors_table(rows: list[Row]) -> list[str]:
    lines = [
        "| problem | relaxation | error with 8 evaluations | at tau | error with 1000 | at tau |",
        "|---|---|--:|--:|--:|--:|",
    ]
    for name in PROBLEMS:
        own = [(r["regularizer"], *_best(r)) for r in rows if r["problem"] == name]
        least = [min(e[i] for _, e, _ in own) for i in range(2)]
        for place, (regularizer, errors, taus) in enumerate(own):
            cells = []
            for error, tau, best in zip(errors, taus, least, strict=True):
                text = f"{error:.2f}"
                cells += [f"**{text}**" if error < 1.1 * best else text, f"{tau:g}"]
            lines.append(f"| {'' if place else name} | `{regularizer}` | {' | '.join(cells)} |")
    return lines


# ---- cost and shape of the soft points -----------------------------------------------------------

ROWS, ITEMS, CHOSEN = 64, 1000, 50
SOFTENERS = (*SMOOTH, ag.ExponentialFamily(), ag.SuccessiveSoftmax())


def measure_cost() -> list[Row]:
    """Time of forward and backward for 50 of 1000, in turns; exact zeros and ones; distance from the hull."""
    torch.set_num_threads(1)
    g = torch.Generator().manual_seed(8)
    scores = torch.randn(ROWS, ITEMS, generator=g).requires_grad_()
    weights = torch.randn(ITEMS, generator=g)
    best = dict.fromkeys(map(repr, SOFTENERS), math.inf)
    points: dict[str, Tensor] = {}
    for _ in range(7):
        for regularizer in SOFTENERS:
            start = time.perf_counter()
            z = ag.Subset(CHOSEN).relax(scores, 0.5, regularizer=regularizer)
            torch.autograd.grad((z * weights).sum(), scores)
            name = repr(regularizer)
            best[name] = min(best[name], time.perf_counter() - start)
            points[name] = z.detach()
    fastest = min(best.values())
    return [
        {
            "regularizer": name,
            "times": best[name] / fastest,
            "whole": ((z == 0) | (z == 1)).float().mean().item(),
            "largest": z.max().item(),
            "off": (z.sum(-1) - CHOSEN).abs().max().item(),
        }
        for name, z in points.items()
    ]


def cost_table(rows: list[Row]) -> list[str]:
    lines = [
        "| relaxation of 50 of 1000 | time | exactly 0 or 1 | largest entry |",
        "|---|--:|--:|--:|",
    ]
    lines += [
        f"| `{r['regularizer']}` | {r['times']:.1f} | {r['whole']:.0%} | {r['largest']:.2f} |"
        for r in sorted(rows, key=lambda r: r["times"])
    ]
    return lines


MEASURE = {"errors": measure_errors, "cost": measure_cost}
TABLE = {"errors": errors_table, "cost": cost_table}


def block(name: str, results: dict[str, Any]) -> str:
    entry = results[name]
    source = f"argrad {entry['argrad']}, torch {entry['torch']}, CPU, {entry['date']}"
    lines = TABLE[name](entry["rows"])
    return "\n".join([*lines, "", f"*Measured by `docs/choose/measure.py`: {source}.*", ""])


def filled(text: str, results: dict[str, Any]) -> str:
    """The page with its tables brought up to date."""
    return BLOCK.sub(lambda m: m[1] + block(m[2], results) + m[4], text)


def main(arguments: list[str]) -> None:
    torch.set_num_threads(1)
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name in [] if arguments == ["--write-only"] else arguments or list(MEASURE):
        today = datetime.now(UTC).date().isoformat()
        about = {"argrad": ag.__version__, "torch": torch.__version__.split("+")[0], "date": today}
        results[name] = {**about, "rows": MEASURE[name]()}
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    PAGE.write_text(filled(PAGE.read_text(), results))


if __name__ == "__main__":
    main(sys.argv[1:])
