"""Temperature scaling by several libraries on the same logits: `benchmarks/run.sh -m benchmarks.temperatures`.

Not a race: the question is who finds the optimum. The cases are those that users of the peers reported. Prints JSON,
which `docs/measure.py temperatures` turns into a table.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import logging
import math
import sys
import types
import warnings
from collections.abc import Callable
from importlib import metadata, util
from pathlib import Path

import torch
from torch import Tensor, nn

import argrad as ag

Case = Callable[[torch.dtype], tuple[Tensor, Tensor]]
Fit = Callable[[Tensor, Tensor], float]


# ---- cases -------------------------------------------------------------------------------------------


def true_temperature(T: float) -> Case:
    """2000 rows of ten logits; the labels were drawn at temperature T."""

    def case(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        g = torch.Generator().manual_seed(0)
        truth = 3 * torch.randn(2000, 10, generator=g, dtype=torch.float64)
        return (T * truth).to(dtype), ag.gumbel_max(truth, generator=g)

    return case


def of_logits(label: Callable[[Tensor], Tensor]) -> Case:
    """300 rows of five logits, with labels made from them."""

    def case(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        logits = torch.randn(300, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        return logits.to(dtype), label(logits)

    return case


CASES: dict[str, Case] = {
    **{f"T = {T:g}": true_temperature(T) for T in (0.01, 0.3, 2.5, 20.0, 100.0)},
    "every label is the arg max": of_logits(lambda z: z.argmax(-1)),
    "every label is the arg min": of_logits(lambda z: z.argmin(-1)),
}


# ---- peers -------------------------------------------------------------------------------------------


def argrad_fit(logits: Tensor, labels: Tensor) -> float:
    return ag.calibration.fit_temperature(logits, labels).temperature.item()


def lbfgs_fit(logits: Tensor, labels: Tensor) -> float:
    """The loop that most people copy: LBFGS on T itself from 1.5, rate 0.01, no line search."""
    temperature = nn.Parameter(torch.full((1,), 1.5, dtype=logits.dtype))
    optimizer = torch.optim.LBFGS([temperature], lr=0.01, max_iter=200)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(logits / temperature, labels)
        loss.backward()
        return loss

    optimizer.step(closure)
    return temperature.item()


def netcal_fit(logits: Tensor, labels: Tensor) -> float:
    """It takes probabilities and keeps 1/T."""
    from netcal.scaling import TemperatureScaling

    scaling = TemperatureScaling()
    scaling.fit(logits.softmax(-1).numpy(), labels.numpy())
    return 1 / float(scaling.temperature[0])


def torch_uncertainty_fit(logits: Tensor, labels: Tensor) -> float:
    scaler = _torch_uncertainty()()
    scaler.fit(torch.utils.data.DataLoader(list(zip(logits, labels, strict=True)), 500), progress=False)
    return float(scaler.temperature[0].detach())


@functools.cache
def _torch_uncertainty() -> type:
    """The scaler alone: the package itself imports lightning, timm and torchvision."""
    spec = util.find_spec("torch_uncertainty")
    if spec is None or spec.origin is None:
        raise ImportError("No module named 'torch_uncertainty'")
    root = Path(spec.origin).parent
    for name in ("torch_uncertainty", "torch_uncertainty.post_processing"):
        if name not in sys.modules:
            module = sys.modules[name] = types.ModuleType(name)
            module.__path__ = [str(root.joinpath(*name.split(".")[1:]))]
    from torch_uncertainty.post_processing import abstract

    sys.modules["torch_uncertainty.post_processing"].PostProcessing = abstract.PostProcessing  # type: ignore[attr-defined]
    name = "torch_uncertainty.post_processing.calibration"
    module = sys.modules.setdefault(name, types.ModuleType(name))
    module.__path__ = [str(root / "post_processing" / "calibration")]
    from torch_uncertainty.post_processing.calibration.temperature_scaler import TemperatureScaler

    return TemperatureScaler


PEERS: dict[str, tuple[Fit, str | None]] = {
    "argrad": (argrad_fit, None),
    "LBFGS loop": (lbfgs_fit, None),
    "netcal": (netcal_fit, "netcal"),
    "torch-uncertainty": (torch_uncertainty_fit, "torch-uncertainty"),
}


# ---- measuring ---------------------------------------------------------------------------------------


def mean_nll(logits: Tensor, labels: Tensor, T: float) -> float:
    """At T in float64, the limits 0 and infinity included; NaN for a negative temperature."""
    if math.isnan(T) or T < 0:
        return math.nan
    z = logits.double()
    if T == 0:
        top = z == z.amax(-1, keepdim=True)
        z = torch.where(top, 0.0, -math.inf)
        return nn.functional.cross_entropy(z, labels).item()
    return nn.functional.cross_entropy(z / T, labels).item()


def quietly(fit: Fit, logits: Tensor, labels: Tensor) -> float:
    """NaN if it fails; whatever it prints is not for our reader."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        with contextlib.redirect_stderr(io.StringIO()):
            try:
                return fit(logits, labels)
            except (ValueError, RuntimeError, IndexError):
                return math.nan


def measure() -> list[dict[str, object]]:
    """A row for each case and dtype: the temperature that each peer finds, and how much likelihood it loses."""
    logging.disable(logging.ERROR)
    rows = []
    for name, case in CASES.items():
        for dtype in (torch.float32, torch.float64):
            logits, labels = case(dtype)
            row: dict[str, object] = {"case": name, "dtype": str(dtype).removeprefix("torch.")}
            best = mean_nll(logits, labels, argrad_fit(logits, labels))
            for peer, (fit, package) in PEERS.items():
                T = quietly(fit, logits, labels)
                version = None if package is None else metadata.version(package)
                row[peer] = {
                    "T": T if math.isfinite(T) else str(T),
                    "loss": _finite(mean_nll(logits, labels, T) - best),
                    "version": version,
                }
            rows.append(row)
    return rows


def _finite(x: float) -> float | str:
    return x if math.isfinite(x) else str(x)


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps(measure()))
