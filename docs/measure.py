"""Measure the numbers that the documentation quotes, and write them into its tables.

    .venv/bin/python docs/measure.py                # measure everything (a quarter of an hour), then write
    .venv/bin/python docs/measure.py ties           # measure one table, then write
    .venv/bin/python docs/measure.py --write-only   # put docs/measured.json into the pages again

A table stands between `<!-- measured: NAME -->` and `<!-- end -->` in a page. `tests/test_docs.py` checks
that it says what `docs/measured.json` says.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.distributions.utils import clamp_probs

import argrad as ag

DOCS = Path(__file__).resolve().parent
RESULTS = DOCS / "measured.json"
PAGES = [DOCS.parent / "README.md", *sorted(DOCS.glob("*.md"))]
BLOCK = re.compile(r"(<!-- measured: (\w+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)

Row = dict[str, Any]

# ---- tails: how far does Gumbel noise reach? -----------------------------------------------------

DRAWS, CHUNK = 10**9, 10**7


def _ours(n: int) -> Tensor:
    return ag.random.gumbel((n // 1000, 1000))


def _log_of_exponential(n: int) -> Tensor:
    return -torch.empty(n).exponential_().log()


def _two_logs(n: int) -> Tensor:
    return -torch.log(-torch.log(torch.rand(n)))


def _clamped(n: int) -> Tensor:
    return -torch.log(-torch.log(clamp_probs(torch.rand(n))))


def _torch_gumbel(n: int) -> Tensor:
    return torch.distributions.Gumbel(0.0, 1.0).sample(torch.Size([n]))


WAYS: list[tuple[str, Callable[[int], Tensor], bool]] = [
    ("`argrad.random.gumbel`", _ours, False),
    ("the same, compiled", _ours, True),
    ("`-empty(n).exponential_().log()`, as in `F.gumbel_softmax`", _log_of_exponential, False),
    ("the same, compiled", _log_of_exponential, True),
    ("`-log(-log(torch.rand(n)))`", _two_logs, False),
    ("the same after `clamp_probs`, as in `RelaxedOneHotCategorical`", _clamped, False),
    ("`torch.distributions.Gumbel`", _torch_gumbel, False),
]


def measure_tails() -> list[Row]:
    """Draws above the points that a Gumbel passes with probability 1e-7 and 1e-8."""
    rows = []
    for place, (way, function, compiled) in enumerate(WAYS):
        torch.manual_seed(place)
        draw = torch.compile(function, fullgraph=True, dynamic=False) if compiled else function
        row: Row = {"way": way, "1e-7": 0, "1e-8": 0, "largest": -math.inf}
        for _ in range(DRAWS // CHUNK):
            x = draw(CHUNK)
            # P(G > x) = 1 - exp(-exp(-x)), so that the point for p is -log(-log(1 - p))
            row["1e-7"] += int((x > -math.log(-math.log1p(-1e-7))).sum())
            row["1e-8"] += int((x > -math.log(-math.log1p(-1e-8))).sum())
            row["largest"] = max(row["largest"], x.max().item())
        rows.append(row)
        print(row, flush=True)
    return rows


def tails_table(rows: list[Row]) -> list[str]:
    lines = [
        "| float32 Gumbel noise | beyond p = 1e-7 | beyond p = 1e-8 | largest |",
        "|---|--:|--:|--:|",
    ]
    lines.append(f"| *expected in 10⁹ draws* | *{DRAWS * 1e-7:.0f}* | *{DRAWS * 1e-8:.0f}* | |")
    lines += [f"| {r['way']} | {r['1e-7']} | {r['1e-8']} | {r['largest']:.2f} |" for r in rows]
    return lines


# ---- ties: what a coarse grid does to `y == y.max()` ----------------------------------------------


def measure_ties() -> list[Row]:
    """Ten equal logits, a million rows: how often does the comparison mark more than one item?"""
    rows = []
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        torch.manual_seed(0)
        logits = torch.zeros(10**6, 10, dtype=dtype)
        noise = -torch.empty(10**7, dtype=dtype).exponential_().log()
        y = F.gumbel_softmax(logits, tau=1.0)
        several = (y == y.amax(-1, keepdim=True)).sum(-1) > 1
        ours = ag.gumbel_softmax(logits, hard=True)
        row = {
            "dtype": str(dtype).removeprefix("torch."),
            "distinct": len(noise.unique()),
            "several": several.float().mean().item(),
            "ours": (ours.sum(-1) != 1).float().mean().item(),
        }
        rows.append(row)
        print(row, flush=True)
    return rows


def ties_table(rows: list[Row]) -> list[str]:
    lines = [
        "| dtype | distinct values among 10⁷ Gumbels drawn in it | rows with several ones by `y == y.max()` "
        "| rows with several ones from `hard=True` here |",
        "|---|--:|--:|--:|",
    ]
    return lines + [
        f"| {r['dtype']} | {r['distinct']:,} | {100 * r['several']:.2g} % | {100 * r['ours']:.2g} % |"
        for r in rows
    ]


# ---- temperature: bias, spread, starved rows -----------------------------------------------------

TAUS = (5.0, 2.0, 1.0, 0.5, 0.2, 0.1, 0.01, 0.001)
PROBLEMS, REPEATS, ROUNDS, CLASSES = 50, 10_000, 20, 10


def _cost(z: Tensor, w: Tensor) -> Tensor:
    return torch.exp((z * w).sum(-1))


def _gradients(logits: Tensor, w: Tensor, tau: float, hard: bool, seed: int) -> Tensor:
    """One gradient a draw, `(repeats, problems, classes)`."""
    leaf = logits.expand(REPEATS, *logits.shape).clone().requires_grad_()
    z = ag.gumbel_softmax(leaf, tau, hard=hard, generator=torch.Generator().manual_seed(seed))
    (grad,) = torch.autograd.grad(_cost(z, w).sum(), leaf)
    return grad.double()


def _bias_and_spread(logits: Tensor, w: Tensor, tau: float, hard: bool) -> dict[str, float]:
    """Relative to the length of the exact gradient: bias, its standard error, root of the variance."""
    p, f = logits.double().softmax(-1), w.double().exp()
    exact = p * (f - (p * f).sum(-1, keepdim=True))
    total, square = torch.zeros_like(exact), 0.0
    for seed in range(ROUNDS):
        grad = _gradients(logits, w, tau, hard, seed)
        total += grad.sum(0)
        square += grad.square().sum().item()
    n, scale = REPEATS * ROUNDS, exact.norm().item()
    mean = total / n
    spread = math.sqrt(square / n - mean.square().sum().item())
    gap = (mean - exact).square().sum().item() - spread**2 / n  # without the part that is noise
    return {
        "bias": math.sqrt(max(gap, 0.0)) / scale,
        "error": spread / math.sqrt(n) / scale,
        "spread": spread / scale,
    }


def _starved(tau: float) -> float:
    """Share of rows whose gradient is exactly zero."""
    g = torch.Generator().manual_seed(2)
    leaf = torch.randn(100_000, CLASSES, generator=g).requires_grad_()
    z = ag.gumbel_softmax(leaf, tau, generator=g)
    (grad,) = torch.autograd.grad(_cost(z, torch.randn(CLASSES, generator=g)).sum(), leaf)
    return (grad == 0).all(-1).float().mean().item()


def measure_temperature() -> list[Row]:
    """Gradient of E f with f(z) = exp(w z), against the exact one, over random problems."""
    g = torch.Generator().manual_seed(0)
    logits, w = (torch.randn(PROBLEMS, CLASSES, generator=g) for _ in range(2))
    rows = []
    for tau in TAUS:
        top = ag.gumbel_softmax(logits.expand(1000, -1, -1), tau, generator=g).amax(-1).mean()
        row: Row = {"tau": tau, "top": top.item(), "starved": _starved(tau)}
        row["soft"] = _bias_and_spread(logits, w, tau, False)
        row["hard"] = _bias_and_spread(logits, w, tau, True)
        rows.append(row)
        print(row, flush=True)
    return rows


def temperature_table(rows: list[Row]) -> list[str]:
    lines = [
        "| tau | largest coordinate | soft: bias | soft: spread | straight-through: bias "
        "| straight-through: spread | starved rows |",
        "|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for r in rows:
        cells = [f"{r['top']:.2f}"]
        for kind in ("soft", "hard"):
            bias, error = r[kind]["bias"], r[kind]["error"]
            cells += [
                f"{bias:.2f}" if bias > 3 * error else f"< {4 * error:.1g}",
                f"{r[kind]['spread']:.{0 if r[kind]['spread'] >= 10 else 2}f}",
            ]
        lines.append(f"| {r['tau']:g} | {' | '.join(cells)} | {100 * r['starved']:.2g} % |")
    return lines


BUDGETS = (1, 10, 100, 1000)  # samples averaged for one update


def choice_table(rows: list[Row]) -> list[str]:
    """From the same measurements: the temperature with the least error, for a number of samples."""
    lines = [
        "| samples behind an update | soft: best tau | error there | straight-through: best tau | error there |",
        "|--:|--:|--:|--:|--:|",
    ]
    for n in BUDGETS:
        cells = [str(n)]
        for kind in ("soft", "hard"):
            error = {
                r["tau"]: math.hypot(r[kind]["bias"], r[kind]["spread"] / math.sqrt(n)) for r in rows
            }
            best = min(error, key=lambda tau: error[tau])
            cells += [f"{best:g}", f"{error[best]:.2f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


# ---- pages ---------------------------------------------------------------------------------------

MEASURE = {"tails": measure_tails, "ties": measure_ties, "temperature": measure_temperature}
TABLE = {"tails": tails_table, "ties": ties_table, "temperature": temperature_table}
TABLE["choice"] = choice_table
SOURCE = {"choice": "temperature"}  # tables that show another measurement


def block(name: str, results: dict[str, Any]) -> str:
    """The Markdown that belongs between the two comments of a table."""
    measured = SOURCE.get(name, name)
    entry = results[measured]
    source = f"argrad {entry['argrad']}, torch {entry['torch']}, CPU, {entry['date']}"
    lines = TABLE[name](entry["rows"])
    return "\n".join([*lines, "", f"*Measured by `docs/measure.py {measured}`: {source}.*", ""])


def filled(text: str, results: dict[str, Any]) -> str:
    """A page with its measured tables brought up to date."""
    return BLOCK.sub(lambda m: m[1] + block(m[2], results) + m[4], text)


def main(arguments: list[str]) -> None:
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    names = [] if arguments == ["--write-only"] else arguments or list(MEASURE)
    for name in names:
        today = datetime.now(UTC).date().isoformat()
        about = {"argrad": ag.__version__, "torch": torch.__version__.split("+")[0], "date": today}
        results[name] = {**about, "rows": MEASURE[name]()}
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    for page in PAGES:
        page.write_text(filled(page.read_text(), results))


if __name__ == "__main__":
    main(sys.argv[1:])
