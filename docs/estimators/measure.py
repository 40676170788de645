"""Measure every estimator on small random problems and write the tables of `choose.md`.

    .venv/bin/python docs/estimators/measure.py                # measure (minutes), then write
    .venv/bin/python docs/estimators/measure.py trees_gibbs    # measure one problem, then write
    .venv/bin/python docs/estimators/measure.py --write-only   # put measured.json into the page again

A table stands between `<!-- estimators: NAME -->` and `<!-- end -->`. Each problem is a batch of eight random
instances, each with its own scores and its own cost, so that no table hangs on a lucky draw. All are small enough to
compare with the exact gradient (by enumeration; for perturbed trees and subsets a long leave-one-out run).
"""

from __future__ import annotations

import json
import math
import platform
import re
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import argrad as ag

HERE = Path(__file__).resolve().parent
RESULTS, PAGE = HERE / "measured.json", HERE / "choose.md"
BLOCK = re.compile(r"(<!-- estimators: (\w+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
INSTANCES, REPLICATES, WIDTH = 8, 5000, 8
OFFSET = 3.0  # of every cost: a real loss is not centred at 0, which would flatter plain REINFORCE
BUDGETS = (8, 1000)  # evaluations of f behind one update
NEAR, TINY = 1.1, 5e-4  # how close to the best counts as equal
F64 = torch.float64

# ---- problems ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Problem:
    """A law and a cost `(S, *replicates, instances, *event) -> (S, *replicates, instances)`."""

    title: str
    q: Any
    f: Callable[[Tensor], Tensor]


def _normal(g: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(*shape, dtype=F64, generator=g)


def _linear(g: torch.Generator, n: int) -> Callable[[Tensor], Tensor]:
    c = _normal(g, INSTANCES, n)
    return lambda x: OFFSET + (c * x).sum(-1)


def _quadratic(g: torch.Generator, n: int) -> Callable[[Tensor], Tensor]:
    c, a = _normal(g, INSTANCES, n), _normal(g, INSTANCES, n, n) / math.sqrt(n)
    return lambda x: OFFSET + (c * x).sum(-1) + torch.einsum("...bi,bij,...bj->...b", x, a, x)


def _tanh_net(g: torch.Generator, n: int) -> Callable[[Tensor], Tensor]:
    w, v = _normal(g, INSTANCES, n, WIDTH), _normal(g, INSTANCES, WIDTH)
    return lambda x: OFFSET + (torch.tanh(torch.einsum("...bn,bnh->...bh", x, w)) * v).sum(-1)


def _over(cost: Callable[[Tensor], Tensor], event_dims: int) -> Callable[[Tensor], Tensor]:
    return lambda z: cost(z.flatten(-event_dims))


def _categoricals(kind: Callable[..., Any], title: str) -> Problem:
    g = torch.Generator().manual_seed(1)
    q = ag.Gibbs(ag.OneHot(), _normal(g, INSTANCES, 3, 4)).independent(1)
    return Problem(f"3 categoricals of 4, {title} cost", q, _over(kind(g, 12), 2))


def _bits() -> Problem:
    g = torch.Generator().manual_seed(2)
    return Problem("8 bits, tanh net", ag.Gibbs(ag.Bits(), _normal(g, INSTANCES, 8)), _tanh_net(g, 8))


def _subset(law: type) -> Problem:
    g = torch.Generator().manual_seed(3)
    q = law(ag.Subset(2), _normal(g, INSTANCES, 6))
    return Problem(f"2 of 6, tanh net, `{law.__name__}`", q, _tanh_net(g, 6))


def _trees(law: type) -> Problem:
    g = torch.Generator().manual_seed(4)
    scores = _normal(g, INSTANCES, 4, 4)
    q = law(ag.SpanningTree(), (scores + scores.mT) / math.sqrt(2))
    return Problem(f"trees on 4 nodes, tanh net, `{law.__name__}`", q, _over(_tanh_net(g, 16), 2))


PROBLEMS: dict[str, Callable[[], Problem]] = {
    "linear": lambda: _categoricals(_linear, "linear"),
    "quadratic": lambda: _categoricals(_quadratic, "quadratic"),
    "tanh": lambda: _categoricals(_tanh_net, "tanh-net"),
    "bits": _bits,
    "subset_gibbs": lambda: _subset(ag.Gibbs),
    "subset_perturbed": lambda: _subset(ag.Perturbed),
    "trees_gibbs": lambda: _trees(ag.Gibbs),
    "trees_perturbed": lambda: _trees(ag.Perturbed),
}
HEADS = {
    "linear": "3×4 linear",
    "quadratic": "3×4 quadratic",
    "tanh": "3×4 net",
    "bits": "8 bits net",
    "subset_gibbs": "2 of 6, Gibbs",
    "subset_perturbed": "2 of 6, Perturbed",
    "trees_gibbs": "trees, Gibbs",
    "trees_perturbed": "trees, Perturbed",
}

# ---- estimators ----------------------------------------------------------------------------------


def _network(n: int) -> nn.Module:
    return nn.Sequential(nn.Linear(n, 16), nn.Tanh(), nn.Linear(16, 1)).double()


def estimators(size: int) -> dict[str, ag.Estimator]:
    """Label -> estimator; `size` is the number of entries of one event, for networks."""
    return {
        "LocalExpectation()": ag.LocalExpectation(),
        "Reinforce()": ag.Reinforce(),
        "MovingBaseline()": ag.MovingBaseline().double(),
        "Nvil(network)": ag.Nvil(_network(size)).double(),
        "LeaveOneOut(2)": ag.LeaveOneOut(2),
        "LeaveOneOut(4)": ag.LeaveOneOut(4),
        "LeaveOneOut(8)": ag.LeaveOneOut(8),
        "SumAndSample(4)": ag.SumAndSample(4),
        "UnorderedSet(4)": ag.UnorderedSet(4),
        "Arm()": ag.Arm(),
        "DisArm()": ag.DisArm(),
        "MuProp()": ag.MuProp(),
        "Rebar()": ag.Rebar().double(),
        "Relax(network)": ag.Relax(_network(size)).double(),
        "Relax(network, use_f=False)": ag.Relax(_network(size), use_f=False).double(),
        "Darn()": ag.Darn(),
        "StraightThrough()": ag.StraightThrough(),
        "ReinMax()": ag.ReinMax(),
        "ReinMaxCV(num_samples=4)": ag.ReinMaxCV(num_samples=4).double(),
        "GappedST()": ag.GappedST(),
        "GumbelST(1.0)": ag.GumbelST(1.0),
        "GumbelST(0.5)": ag.GumbelST(0.5),
        "GumbelRao(0.5)": ag.GumbelRao(0.5),
        "DecoupledST()": ag.DecoupledST(),
        "Relaxed(1.0)": ag.Relaxed(1.0),
        "Relaxed(0.5)": ag.Relaxed(0.5),
        "Relaxed(0.1)": ag.Relaxed(0.1),
        "PerturbedOptimizer(10)": ag.PerturbedOptimizer(10),
        "Imle()": ag.Imle(),
        "Imle(1.0, symmetric=False)": ag.Imle(1.0, symmetric=False),
        "Imle(10.0, symmetric=False)": ag.Imle(10.0, symmetric=False),
        "AdaptiveImle()": ag.AdaptiveImle(step=0.01),
        "Identity()": ag.Identity(),
    }


def warm_up(estimator: ag.Estimator, problem: Problem, steps: int = 200) -> None:
    """Let running averages settle and control variates train, as they would be in a long run."""
    if not isinstance(estimator, nn.Module):
        return
    g = torch.Generator().manual_seed(5)
    q = problem.q.expand((4, INSTANCES))
    leaf = q.scores.detach().clone().requires_grad_()
    q = q.with_scores(leaf)
    parameters = [p for p in estimator.parameters() if p.requires_grad]
    optimizer = torch.optim.Adam(parameters, lr=0.02) if parameters else None
    for _ in range(steps):
        loss = estimator(problem.f, q, generator=g).mean()
        for p in parameters:
            p.grad = None
        loss.backward()
        if optimizer is not None:
            optimizer.step()
    estimator.eval()


# ---- measuring -----------------------------------------------------------------------------------


def exact_gradient(problem: Problem) -> Tensor:
    """Of all instances; where it cannot be enumerated, the mean of many leave-one-out estimates of 64."""
    if isinstance(problem.q, ag.Gibbs):
        return ag.Exact().evaluate(problem.f, problem.q).scores_grad
    return mean_gradient(ag.LeaveOneOut(64), problem)


def mean_gradient(estimator: ag.Estimator, problem: Problem) -> Tensor:
    g = torch.Generator().manual_seed(6)
    many = problem.q.expand((REPLICATES, INSTANCES))
    return estimator.evaluate(problem.f, many, generator=g).scores_grad.mean(0)


def angle(x: Tensor, y: Tensor) -> float:
    """Between two gradients, in degrees."""
    cosine = torch.nn.functional.cosine_similarity(x.flatten(), y.flatten(), 0).clamp(-1, 1)
    return math.degrees(math.acos(cosine.item()))


def measure(name: str) -> dict[str, Any]:
    problem = PROBLEMS[name]()
    size = problem.q.event_shape.numel()
    torch.manual_seed(0)  # of the networks' first weights
    usable = {n: e for n, e in estimators(size).items() if e.works_with(problem.q)}
    if problem.q.joined == 0 and not isinstance(problem.q.structure, ag.Bits):
        usable.pop("LocalExpectation()", None)  # one variable: the same as Exact
    for estimator in usable.values():
        warm_up(estimator, problem)
    g = torch.Generator().manual_seed(7)
    report = ag.diagnose(problem.f, problem.q, usable, replicates=REPLICATES, generator=g)
    exact = exact_gradient(problem)
    length = exact.norm().item()
    rows = []
    for row in report.rows:
        estimator = usable[row.name]
        if estimator.is_unbiased and row.verdict != "unbiased":
            raise AssertionError(f"{row.name} on {name}: flagged unbiased, max |z| = {row.max_z:.1f}")
        rows.append(
            {
                "name": row.name,
                "flagged_unbiased": estimator.is_unbiased,
                "differentiates_f": estimator.needs_differentiable_f and _uses_slope(estimator),
                "verdict": row.verdict,
                "bias": 0.0 if estimator.is_unbiased else row.relative_bias,
                "max_z": row.max_z,
                "spread": math.sqrt(row.variance) / length,
                "angle": 0.0
                if estimator.is_unbiased
                else angle(mean_gradient(estimator, problem), exact),
                "evaluations": row.evaluations,
            }
        )
        print(
            f"{name:18}{row.name:30}bias {rows[-1]['bias']:.3f}  spread {rows[-1]['spread']:.2f}",
            flush=True,
        )
    about = {k: v for k, v in asdict(report).items() if k != "rows"}
    return {"title": problem.title, "length": length, **about, "rows": rows}


def _uses_slope(estimator: ag.Estimator) -> bool:
    return not (isinstance(estimator, ag.Relax) and not estimator.use_f)


def machine() -> dict[str, Any]:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "argrad": ag.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "cpu": names[0] if names else platform.processor(),
        "threads": torch.get_num_threads(),
        "date": datetime.now(UTC).date().isoformat(),
        "instances": INSTANCES,
        "replicates": REPLICATES,
    }


# ---- tables --------------------------------------------------------------------------------------


def error(row: dict[str, Any], budget: int) -> float | None:
    """Relative error of one update that may evaluate f `budget` times; None if one estimate needs more."""
    if row["evaluations"] > budget:
        return None
    return math.sqrt(row["bias"] ** 2 + row["spread"] ** 2 * row["evaluations"] / budget)


def _number(x: float) -> str:
    return f"{x:.1f}" if x >= 10 else f"{x:.2f}"


def _bias(row: dict[str, Any], replicates: int) -> str:
    if row["flagged_unbiased"]:
        return "0"
    if row["verdict"] == "unbiased":  # too small to be seen
        return f"< {max(3 * row['spread'] / math.sqrt(replicates), 0.005):.2f}"
    return _number(row["bias"])


def _by_name(results: dict[str, Any]) -> dict[str, dict[str, dict[str, Any]]]:
    return {p: {r["name"]: r for r in entry["rows"]} for p, entry in results["problems"].items()}


def _matrix(results: dict[str, Any], cell: Callable[[str, dict[str, Any]], str]) -> list[str]:
    table = _by_name(results)
    lines = [
        "| estimator | " + " | ".join(HEADS[p] for p in table) + " |",
        "|---" + "|--:" * len(table) + "|",
    ]
    for name in estimators(1):
        cells = [cell(p, table[p][name]) if name in table[p] else "" for p in table]
        if any(cells):
            lines.append(f"| `{name}` | " + " | ".join(cells) + " |")
    return lines


def bias_table(results: dict[str, Any]) -> list[str]:
    return _matrix(
        results,
        lambda p, r: f"{_bias(r, results['problems'][p]['replicates'])} / {_number(r['spread'])}",
    )


def angle_table(results: dict[str, Any]) -> list[str]:
    def cell(problem: str, row: dict[str, Any]) -> str:
        if row["flagged_unbiased"]:
            return ""
        if row["verdict"] == "unbiased":  # nothing but noise
            noise = 3 * row["spread"] / math.sqrt(results["problems"][problem]["replicates"])
            return f"< {max(math.degrees(math.atan(noise)), 1):.0f}°"
        return f"{row['angle']:.0f}°"

    return _matrix(results, cell)


def _error_table(results: dict[str, Any], budget: int) -> list[str]:
    table = _by_name(results)
    best = {
        p: min(e for r in rows.values() if (e := error(r, budget)) is not None)
        for p, rows in table.items()
    }

    def cell(problem: str, row: dict[str, Any]) -> str:
        e = error(row, budget)
        if e is None:
            return "–"
        text = f"{e:.2f}" if e >= 0.095 else f"{e:.3f}"
        return f"**{text}**" if e <= NEAR * best[problem] + TINY else text

    return _matrix(results, cell)


def advice_table(results: dict[str, Any]) -> list[str]:
    """The best of each kind, and whatever comes within a tenth of it."""
    kinds: dict[str, Callable[[dict[str, Any]], bool]] = {
        "black box": lambda r: r["flagged_unbiased"] and not r["differentiates_f"],
        "differentiable, must be unbiased": lambda r: r["flagged_unbiased"],
        "differentiable, bias allowed": lambda r: True,
    }
    head = " | ".join(f"best with {b} evaluations" for b in BUDGETS)
    lines = [f"| problem | cost | {head} |", "|---|---|" + "---|" * len(BUDGETS)]
    for problem, entry in results["problems"].items():
        for kind, wanted in kinds.items():
            rows = [r for r in entry["rows"] if wanted(r)]
            cells = [_winners(rows, b) for b in BUDGETS]
            lines.append(f"| {HEADS[problem]} | {kind} | " + " | ".join(cells) + " |")
    return lines


def _winners(rows: list[dict[str, Any]], budget: int) -> str:
    found = sorted((e, r["name"]) for r in rows if (e := error(r, budget)) is not None)
    near = [(e, n) for e, n in found if e <= NEAR * found[0][0] + TINY]
    names = ", ".join(f"`{n}`" for _, n in near[:3])
    top = found[0][0]
    return f"{names} ({top:.2f})" if top >= 0.095 else f"{names} ({top:.3f})"


TABLES: dict[str, Callable[[dict[str, Any]], list[str]]] = {
    "bias": bias_table,
    "angle": angle_table,
    "small": lambda r: _error_table(r, BUDGETS[0]),
    "large": lambda r: _error_table(r, BUDGETS[1]),
    "advice": advice_table,
}


def block(name: str, results: dict[str, Any]) -> str:
    m = results["machine"]
    source = f"argrad {m['argrad']}, torch {m['torch'].split('+')[0]}, CPU, {m['date']}"
    note = f"*Measured by `docs/estimators/measure.py`: {source}.*"
    return "\n".join([*TABLES[name](results), "", note, ""])


def filled(text: str, results: dict[str, Any]) -> str:
    """The page with its tables brought up to date."""
    return BLOCK.sub(lambda m: m[1] + block(m[2], results) + m[4], text)


def main(arguments: list[str]) -> None:
    torch.set_num_threads(1)
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"problems": {}}
    names = [] if arguments == ["--write-only"] else arguments or list(PROBLEMS)
    start = time.perf_counter()
    for name in names:
        results["problems"][name] = measure(name)
        results["problems"] = {p: results["problems"][p] for p in PROBLEMS if p in results["problems"]}
        results["machine"] = machine()
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    if names:
        print(f"{time.perf_counter() - start:.0f} s")
    if PAGE.exists():
        PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), results), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
