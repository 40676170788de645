r"""Temperatures and class weights that make probabilities mean what they say.

One principle: of all predictions that agree with the labels in some averages, take those of the largest
entropy. One average (the logit of the true class) gives temperature scaling, class frequencies add
biases, one logit a class gives vector scaling, and a structure's $\langle\theta, z\rangle$ gives a
temperature for subsets, trees and sequences.
"""

from __future__ import annotations

from argrad.calibration.constraints import ClassFrequency, ClassLogit, Constraint, Feature, MeanLogit
from argrad.calibration.max_entropy import MaxEntCalibrator, fit_max_entropy
from argrad.calibration.metrics import Reliability, ace, brier, ece, nll, reliability
from argrad.calibration.scale import Status, Temperature
from argrad.calibration.structure import calibrate_structure
from argrad.calibration.temperature import TemperatureScaling, fit_temperature

__all__ = [
    "ClassFrequency",
    "ClassLogit",
    "Constraint",
    "Feature",
    "MaxEntCalibrator",
    "MeanLogit",
    "Reliability",
    "Status",
    "Temperature",
    "TemperatureScaling",
    "ace",
    "brier",
    "calibrate_structure",
    "ece",
    "fit_max_entropy",
    "fit_temperature",
    "nll",
    "reliability",
]
