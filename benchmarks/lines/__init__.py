"""The lines, one file a topic; each file has a tuple `LINES`."""

from __future__ import annotations

from benchmarks.line import Line
from benchmarks.lines import (
    calibration,
    estimators,
    gumbel,
    imports,
    nri,
    recipes,
    sentences,
    seqgan,
    sequences,
    streams,
    structures,
    toolbox,
)

TOPICS: dict[str, tuple[Line, ...]] = {
    "calibration": calibration.LINES,
    "estimators": estimators.LINES,
    "gumbel": gumbel.LINES,
    "imports": imports.LINES,
    "recipes": (*recipes.LINES, *nri.LINES, *seqgan.LINES),
    "sentences": sentences.LINES,
    "sequences": sequences.LINES,
    "streams": streams.LINES,
    "structures": structures.LINES,
    "toolbox": toolbox.LINES,
}
