"""Figures, with matplotlib (`pip install "argrad[plot]"`), in one style that is safe for colour-blind readers.

Each function draws on `ax`, or on a figure of its own, and returns the axes. The core never imports this.
"""

from __future__ import annotations

from argrad.plot.beam import beam_tree
from argrad.plot.calibration import reliability
from argrad.plot.estimators import bias_variance
from argrad.plot.graphs import graph, tree
from argrad.plot.matrices import permutation_matrix
from argrad.plot.plane import surface
from argrad.plot.style import COLORS as COLORS
from argrad.plot.temperature import simplex, temperature_strip

__all__ = [
    "beam_tree",
    "bias_variance",
    "graph",
    "permutation_matrix",
    "reliability",
    "simplex",
    "surface",
    "temperature_strip",
    "tree",
]
