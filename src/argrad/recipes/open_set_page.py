"""The report of `open-set`: the claims, the plane as the classifiers see it, and all numbers."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from argrad import openset
from argrad.recipes import pictures
from argrad.recipes.bench import Claim, Summary
from argrad.recipes.files import write_bytes
from argrad.recipes.report import Row, section, table

if TYPE_CHECKING:
    from argrad.recipes.open_set import Problem, Way

_GRID, _DOTS = 80, 250


@torch.no_grad()
def keep(folder: Path, gan: openset.ConfidentGAN, way: Way, problem: Problem) -> None:
    """For the toy: the confidence over the plane, some training inputs and some outliers, as `plane.npz`."""
    if problem.x.shape[1] != 2:
        return
    high = problem.box[1]
    line = torch.linspace(-high, high, _GRID)
    grid = torch.cartesian_prod(line, line)
    logits = gan.classifier(grid)
    known = logits.softmax(-1)[:, : problem.classes].amax(-1)
    if way.mode == "kl":  # from uniform to certain
        known = (problem.classes * known - 1) / (problem.classes - 1)
    if way.mode == "energy":  # its margin is between -6 and -2: shown as a share of the way
        known = torch.sigmoid(-openset.energy(logits) - 4)
    g = torch.Generator().manual_seed(0)
    if way.gan:
        shown = gan.generator(gan.noise(_DOTS, grid, g))
    elif way.source is not None:
        shown = way.source(problem, g)(_DOTS)
    else:
        shown = torch.empty(0, 2)
    plane = known.reshape(_GRID, _GRID).mT.flip(0)  # rows from top to bottom
    buffer = io.BytesIO()
    np.savez(
        buffer, plane=plane.numpy(), data=problem.x[:_DOTS].numpy(), outliers=shown.numpy(), high=high
    )
    write_bytes(folder / "plane.npz", buffer.getvalue())


def claims(summary: Summary) -> list[Claim]:
    """What the paper hopes for, and what others found."""
    return [*_toy_claims(summary), *_digit_claims(summary)]


def _toy_claims(summary: Summary) -> Iterator[Claim]:
    if "toy" not in summary.rows:
        return
    auroc = {c: summary["toy", c].mean() for c in summary.columns}
    plain, box, shell = (
        auroc.get(c, float("nan")) for c in ("cross-entropy", "kl wide box", "kl shell")
    )
    yield Claim(
        "toy: cross-entropy alone is most confident far away from the data",
        plain < 50,
        f"{plain:.1f} %",
    )
    yield Claim("toy: a hundred outliers from the right box repair it", box > 97, f"{box:.1f} %")
    yield Claim("toy: so does a shell, which needs to know no box", shell > 97, f"{shell:.1f} %")
    gan, after = auroc.get("kl GAN", float("nan")), auroc.get("kl GAN after shell", float("nan"))
    text = "toy: the GAN trained jointly from scratch does not (below 90 %)"
    yield Claim(text, gan < 90, f"{gan:.1f} %, and {after:.1f} % after a shell")


def _digit_claims(summary: Summary) -> Iterator[Claim]:
    if "digits" not in summary.rows:
        return
    plain, shell = summary["digits", "cross-entropy"], summary["digits", "kl shell"]
    values = f"{plain.mean():.1f} % and {shell.mean():.1f} %"
    yield Claim(
        "digits: a shell is no worse than cross-entropy", shell.mean() > plain.mean() - 0.5, values
    )
    loss = plain.mean("right") - shell.mean("right")
    yield Claim("digits: and costs less than 1 % of the accuracy", loss < 1, f"{loss:.2f} points")


def figures(summary: Summary) -> Sequence[str]:
    """The plane, and all numbers of each row."""
    found = list(_planes(summary))
    parts = []
    if found:
        text = (
            "How sure each classifier is, from white (not at all) to dark (certain), in the square from -50 to 50. "
            "Orange: training inputs. Black: outliers it was trained with, those of a GAN at the end of training."
        )
        parts.append(section("The plane", text, f'<div class="tiles">{_STYLE}{"".join(found)}</div>'))
    for row in summary.rows:
        parts.append(section(f"{row}: all numbers", "In percent.", _numbers(summary, row)))
    return parts


_STYLE = (
    "<style>.tiles{display:grid;grid-template-columns:repeat(auto-fill,minmax(200px,1fr));gap:1rem}"
    ".tiles figure{margin:0}.tiles svg{width:100%;height:auto;display:block;border-radius:6px;background:#fff}"
    ".tiles figcaption{font-size:.85rem;margin-top:.35rem}</style>"
)


def _planes(summary: Summary) -> Iterator[str]:
    for result in summary.cells:
        path = result.jobs[0].folder / "plane.npz" if result.jobs else None
        if path is None or not path.is_file():
            continue
        with np.load(path) as kept:
            svg = _svg(kept["plane"], kept["data"], kept["outliers"], float(kept["high"]))
        yield f"<figure>{svg}<figcaption>{escape(result.cell.column)}</figcaption></figure>"


def _svg(plane: np.ndarray, data: np.ndarray, outliers: np.ndarray, high: float) -> str:
    """The grid as a picture of blue ink, with dots on it."""
    ink = np.zeros((*plane.shape, 2), np.uint8)
    ink[..., 0], ink[..., 1] = 90, np.rint(220 * np.clip(plane, 0, 1))
    source = base64.b64encode(pictures.png(ink)).decode("ascii")
    box = f"{-high:g} {-high:g} {2 * high:g} {2 * high:g}"
    place = f'x="{-high:g}" y="{-high:g}" width="{2 * high:g}" height="{2 * high:g}"'
    image = f'<image href="data:image/png;base64,{source}" {place}/>'
    dots = _dots(outliers, "#000", high, 0.5) + _dots(data, "#D55E00", high, 0.35)
    return f'<svg viewBox="{box}" role="img" aria-label="confidence over the plane">{image}{dots}</svg>'


def _dots(points: np.ndarray, colour: str, high: float, radius: float) -> str:
    inside = points[(np.abs(points) <= high).all(1)] if len(points) else points
    circles = "".join(f'<circle cx="{x:.1f}" cy="{-y:.1f}" r="{radius}"/>' for x, y in inside)
    return f'<g fill="{colour}">{circles}</g>'


def _numbers(summary: Summary, row: str) -> str:
    cells = [c for c in summary.cells if c.cell.row == row and c.metrics]
    names = list(dict.fromkeys(n for c in cells for n in c.metrics))
    rows = [Row(c.cell.column, "", i, [c.mean(n) for n in names]) for i, c in enumerate(cells)]
    return table([row, *names], rows)
