"""What the tests of the playground share: states of its tabs, a server, and the page's programs under node."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from argrad.play import page
from argrad.play.server import Playground

NODE = shutil.which("node")

SIMPLEX = {"logits": [0.8, 0.2, -0.6], "tau": 0.5, "seed": 1, "draws": 20}
RACE = {"logits": [1, 0.5, 0, -0.5, -1], "seed": 1, "rounds": 30}
SUBSET = {
    "structure": "subset",
    "k": 3,
    "scores": [1.2, 0.4, -0.3, 0.8, 0, -0.9, 0.5],
    "tau": 0.5,
    "seed": 1,
    "noise": True,
}
BEAM = {"table": [[-0.5, 0.8, 0.4], [0.6, -0.4, 0.5], [0.2, 0.9, -0.6]], "k": 3, "seed": 1}
ESTIMATORS = {
    "structure": "onehot",
    "n": 3,
    "k": 2,
    "cost": "tanh",
    "perturbed": False,
    "estimators": ["Reinforce", "StraightThrough"],
    "replicates": 50,
    "seed": 0,
}
STATES: dict[str, dict[str, Any]] = {
    "simplex": SIMPLEX,
    "race": RACE,
    "structures": SUBSET,
    "beam": BEAM,
    "estimators": ESTIMATORS,
}
# Both compute in float64 and differ in the last digits of logarithms and sums; Sinkhorn stops at 1e-10.
TOLERANCE = 1e-9


def square(kind: str, n: int, seed: int, **changes: Any) -> dict[str, Any]:
    """A state of the structures tab with random scores."""
    scores = torch.randn(n, n, generator=torch.Generator().manual_seed(seed)).double()
    scores = scores + scores.mT if kind == "tree" else scores
    return {**SUBSET, "structure": kind, "scores": scores.tolist(), "seed": seed, **changes}


@contextlib.contextmanager
def serving() -> Iterator[Playground]:
    """A playground on a free port."""
    with Playground(port=0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def in_node(expression: str) -> Any:
    """What the page's mathematics makes of an expression."""
    script = "\n".join(
        [*map(page.source, page.MATHEMATICS), f"console.log(JSON.stringify({expression}))"]
    )
    done = subprocess.run([str(NODE), "-"], input=script, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def assert_same_numbers(one: dict[str, Any], other: dict[str, Any]) -> None:
    """Every name of `one` is in `other`, with the same numbers."""
    for name, value in one.items():
        found = other[name]
        found = found.tolist() if isinstance(found, torch.Tensor) else found
        np.testing.assert_allclose(
            np.array(found, float), np.array(value, float), rtol=TOLERANCE, atol=TOLERANCE, err_msg=name
        )


def run_program(text: str) -> dict[str, Any]:
    """The names that a copied program leaves behind."""
    names: dict[str, Any] = {}
    exec(compile(text, "copied from the playground", "exec"), names)
    return names
