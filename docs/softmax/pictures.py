"""Draw the pictures of these pages.

.venv/bin/python docs/softmax/pictures.py                       # the reliability diagrams
.venv/bin/python docs/softmax/pictures.py runs/open-set         # and the planes, of a run of that recipe
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch
from matplotlib.figure import Figure

import argrad as ag
from argrad import plot
from argrad.recipes import calibrate
from argrad.recipes.bench.run import Run, threads

ASSETS = Path(__file__).resolve().parents[1] / "assets" / "softmax"
PLANES = ("cross-entropy", "kl wide box", "kl GAN", "kl GAN after shell", "kl shell", "energy shell")


def draw_reliability() -> Figure:
    """Digits with pixel noise: as trained, and after temperature scaling."""
    with tempfile.TemporaryDirectory() as folder, threads(1):
        torch.manual_seed(0)
        run = Run(Path(folder), 0)
        (held_out, known), (logits, labels) = calibrate.classify(calibrate.Config(), "pixel noise", run)
    scaling = ag.TemperatureScaling().fit(held_out, known)
    figure = Figure(figsize=(8.6, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    plot.reliability(logits, labels, title="as trained", bins=10, ax=left)
    after = f"T = {scaling.temperature.item():.2f}"
    plot.reliability(scaling(logits), labels, title=after, bins=10, ax=right)
    return figure


def draw_planes(folder: Path) -> Figure:
    """How sure each classifier of the toy is, with the first seed."""
    figure = Figure(figsize=(9.6, 6.6), layout="constrained")
    for axes, name in zip(figure.subplots(2, 3).flat, PLANES, strict=True):
        kept = np.load(_cell(folder, name) / "plane.npz")
        high = float(kept["high"])
        box = (-high, high, -high, high)
        axes.imshow(
            kept["plane"], extent=box, cmap="Blues", vmin=0, vmax=1.15, interpolation="bilinear"
        )
        axes.scatter(*kept["outliers"].T, s=4, color="black", linewidths=0)
        axes.scatter(*kept["data"].T, s=3, color=plot.COLORS[1], linewidths=0)
        axes.set(
            xlim=(-high, high), ylim=(-high, high), xticks=[-high, 0, high], yticks=[-high, 0, high]
        )
        axes.set_title(name, fontsize=10)
    return figure


def _cell(folder: Path, column: str) -> Path:
    for path in folder.glob("cells/toy-*/result.json"):
        said = json.loads(path.read_text())
        if (said["row"], said["column"], said["seed"]) == ("toy", column, 0):
            return path.parent
    sys.exit(
        f"{folder} has no result for {column!r} on the toy; run `argrad reproduce open-set` first."
    )


def main(arguments: list[str]) -> None:
    ASSETS.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context({"font.family": "DejaVu Sans"}):
        options = {"dpi": 110, "metadata": {"Software": None}}
        draw_reliability().savefig(ASSETS / "reliability.png", **options)
        if arguments:
            draw_planes(Path(arguments[0])).savefig(ASSETS / "planes.png", **options)


if __name__ == "__main__":
    main(sys.argv[1:])
