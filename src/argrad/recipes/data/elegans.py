"""The wiring of C. elegans (Varshney et al. 2011), from the files of the package `cect`."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from argrad.recipes.data.places import DataError

_FILE = Path(
    "cache", "VarshneyDataReader.json"
)  # read as a file: the package itself imports half a laboratory


def elegans_wiring() -> Tensor:
    """Which of the 279 neurons sends to which, True at `[to, from]`, neurons that are wired together close together.

    Chemical synapses as they are directed, gap junctions both ways. The data have no places along the body, so the
    order is that of the Fiedler vector of the graph without directions.
    """
    said = _read()
    chemical, gap = (torch.tensor(said["connections"][f"Generic_{kind}"]) for kind in ("CS", "GJ"))
    wires = (chemical.mT + gap > 0).fill_diagonal_(False)  # the files have [from, to]
    order = _fiedler(wires | wires.mT).argsort()
    return wires[order][:, order]


def _read() -> dict[str, Any]:
    spec = importlib.util.find_spec("cect")
    folders = spec.submodule_search_locations if spec is not None else None
    path = Path(next(iter(folders)), _FILE) if folders else None
    if path is None or not path.is_file():
        raise DataError(
            'the wiring of C. elegans needs the package cect. Run: pip install "argrad[recipes]", or take --wiring '
            "generated."
        )
    return json.loads(path.read_text(encoding="utf-8"))


def _fiedler(edges: Tensor) -> Tensor:
    """The eigenvector of the normalised Laplacian that changes least along the edges, without the constant one."""
    a = edges.double()
    scale = a.sum(-1).clamp(min=1).rsqrt()
    vectors = torch.linalg.eigh(torch.eye(len(a)).double() - scale[:, None] * a * scale).eigenvectors
    return scale * vectors[:, 1]
