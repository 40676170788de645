"""Calibration: the time of temperature scaling, where the peer finds the optimum (who does is in `temperatures.py`)."""

from __future__ import annotations

import contextlib
import io
import logging

import torch

from benchmarks.line import Line, Speedup, Step, both
from benchmarks.temperatures import Fit, argrad_fit, lbfgs_fit, mean_nll, true_temperature
from benchmarks.temperatures import netcal_fit as _netcal
from benchmarks.temperatures import torch_uncertainty_fit as _torch_uncertainty

LOGITS, LABELS = true_temperature(2.5)(torch.float64)


def _step(fit: Fit, first: bool = False) -> Step:
    """A fit, quiet; tried once, so that a missing package is noticed before the timing."""

    def step() -> float:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            return fit(LOGITS, LABELS)

    if first:
        logging.disable(logging.WARNING)  # torch-uncertainty tells each time that there is no model
        step()
    return step


def _check_same(ours: float, peer: float) -> None:
    assert abs(ours - peer) < 1e-3 * ours, (ours, peer)


def _check_no_worse(ours: float, peer: float) -> None:
    assert mean_nll(LOGITS, LABELS, ours) <= mean_nll(LOGITS, LABELS, peer), (ours, peer)


LINES = (
    Line(
        name="temperature of (2000, 10) logits, beside netcal",
        ours=lambda: _step(argrad_fit),
        peer=lambda: _step(_netcal, first=True),
        peer_name="netcal.scaling.TemperatureScaling",
        package="netcal",
        check=_check_same,
        goals=both(Speedup(1.0)),
    ),
    Line(
        name="temperature of (2000, 10) logits, beside torch-uncertainty",
        ours=lambda: _step(argrad_fit),
        peer=lambda: _step(_torch_uncertainty, first=True),
        peer_name="torch_uncertainty TemperatureScaler",
        package="torch-uncertainty",
        check=_check_same,
        goals=both(Speedup(1.0)),
    ),
    Line(
        name="temperature of (2000, 10) logits, beside the LBFGS loop",
        ours=lambda: _step(argrad_fit),
        peer=lambda: _step(lbfgs_fit),
        peer_name="the usual LBFGS loop, which stops short",
        package="torch",
        check=_check_no_worse,
        goals=both(Speedup(1.0)),
    ),
)
