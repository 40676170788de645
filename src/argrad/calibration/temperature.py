r"""Temperature scaling: one number that corrects a classifier's confidence."""

from __future__ import annotations

import math
import warnings

import torch
from torch import Tensor, nn

from argrad._checks import can_read, check_event, check_floating, check_scores, refuse_meta
from argrad._errors import ArgradWarning
from argrad._types import Float, Int
from argrad.calibration.scale import Moments, Status, Temperature, solve_scale
from argrad.calibration.targets import check_targets, label_values, shares


def fit_temperature(
    logits: Float[Tensor, "*batch n classes"],
    labels: Int[Tensor, "*batch n"],
    *,
    weights: Float[Tensor, "*batch n"] | None = None,
) -> Temperature:
    r"""The temperature with the highest likelihood, in closed cases and by safeguarded Newton otherwise.

    $$ \min_{\lambda \ge 0} \sum_i w_i \Big[\log \sum_k e^{\lambda z_{ik}} - \lambda z_{i y_i}\Big],
       \qquad T = 1/\lambda $$
    Also the answer to another question: of all predictions $q_i$ with
    $\sum_{ik} q_{ik} z_{ik} = \sum_i z_{i y_i}$, those of the largest entropy are
    $\mathrm{softmax}(\lambda z_i)$. Solved in float64 whatever the dtype of the logits; a function of the
    logits, with exact first and second derivatives.

    Args:
        logits: $z$; the last two dimensions are the examples and their classes, those before are separate
            problems. `-inf` means "never".
        labels: $y$, from 0 to `classes` - 1.
        weights: $w$, one for each example, at least 0; None: all alike.

    Returns:
        A `Temperature`; its `status` tells $T = 0$ and $T = \infty$ from ordinary optima.

    Examples:
        >>> import torch, argrad as ag
        >>> g = torch.Generator().manual_seed(0)
        >>> logits = 3 * torch.randn(20000, 5, generator=g)
        >>> labels = ag.gumbel_max(logits / 2.5, generator=g)
        >>> round(ag.calibration.fit_temperature(logits, labels).temperature.item(), 1)
        2.5

    References: [guo2017], [platt1999].
    """
    check_targets("fit_temperature", logits, labels, weights)
    refuse_meta("fit_temperature", "logits", logits)
    z = logits.double()
    z = z - z.detach().amax(-1, keepdim=True)  # adds a constant to each row, which changes nothing
    w, count = shares(weights, labels)
    observed = label_values(z, labels)
    perfect = ((observed == 0) | (w == 0)).all(-1)
    return solve_scale("fit_temperature", _moments(z, observed, w), perfect, count, logits.dtype)


def _moments(z: Tensor, observed: Tensor, w: Tensor) -> Moments:
    closed = z == -math.inf
    finite = z.masked_fill(closed, 0.0)

    def moments(inverse: Tensor) -> tuple[Tensor, Tensor]:
        q = (inverse[..., None, None] * finite).masked_fill(closed, -math.inf).softmax(-1)
        mean = (q * finite).sum(-1, keepdim=True)
        g = (w * (mean[..., 0] - observed)).sum(-1)
        h = (w * (q * (finite - mean) ** 2).sum(-1)).sum(-1)
        return g, h

    return moments


class TemperatureScaling(nn.Module):
    r"""A layer that divides logits by a temperature fitted on held-out data.

    $$ z \mapsto z / T $$
    Keeps the arg max, and so the accuracy. $T$ is stored with the model's `state_dict`. For $T = 0$ the result
    is 0 at the largest logits and `-inf` elsewhere (a certain prediction), for $T = \infty$ it is 0 (a uniform
    one); both are reported by `status` and a warning, because they say more about the data than about the model.
    For a fit that is itself differentiated use `argrad.calibration.fit_temperature`.

    Examples:
        >>> import torch, argrad as ag
        >>> g = torch.Generator().manual_seed(0)
        >>> logits = 4 * torch.randn(5000, 10, generator=g)
        >>> labels = ag.gumbel_max(logits / 2, generator=g)  # so these logits are twice too large
        >>> scaling = ag.TemperatureScaling().fit(logits, labels)
        >>> scaling, scaling.status
        (TemperatureScaling(T=1.995), <Status.OK: 0>)
        >>> bool(ag.calibration.ece(scaling(logits), labels) < 0.5 * ag.calibration.ece(logits, labels))
        True

    References: [guo2017].
    """

    inverse: Tensor
    codes: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("inverse", torch.ones(()))
        self.register_buffer("codes", torch.zeros((), dtype=torch.int64))
        self.register_load_state_dict_pre_hook(resize_buffers)

    def fit(
        self,
        logits: Float[Tensor, "*batch n classes"],
        labels: Int[Tensor, "*batch n"],
        *,
        weights: Float[Tensor, "*batch n"] | None = None,
    ) -> TemperatureScaling:
        """Set the temperature (one for each leading index of the batch); returns the layer itself."""
        with torch.no_grad():
            found = fit_temperature(logits, labels, weights=weights)
        self.inverse, self.codes = found.inverse, found.status
        warn_about(found.status)
        return self

    @property
    def temperature(self) -> Float[Tensor, "*batch"]:
        """$T$; 0 and infinity included."""
        return 1 / self.inverse

    @property
    def status(self) -> Status | list[Status]:
        """What the fit found; a flat list for a batch of fits."""
        return statuses(self.codes)

    def forward(self, logits: Float[Tensor, "*batch n classes"]) -> Float[Tensor, "*batch n classes"]:
        """Calibrated logits. One temperature fits any shape; a batch of them expects the fit's leading dims."""
        check_floating("TemperatureScaling", "logits", logits)
        check_event("TemperatureScaling", "logits", logits)
        check_scores("TemperatureScaling", "logits", logits)
        inverse = self.inverse.to(logits)
        inverse = inverse[..., None, None] if inverse.dim() else inverse
        closed = logits == -math.inf
        scaled = logits.masked_fill(closed, 0.0) * torch.where(inverse == math.inf, 1.0, inverse)
        top = torch.where(logits == logits.amax(-1, keepdim=True), 0.0, -math.inf)
        return torch.where(inverse == math.inf, top, scaled.masked_fill(closed, -math.inf))

    def extra_repr(self) -> str:
        """The temperature, if there is one and it can be read."""
        if self.inverse.dim() or not can_read(self.inverse):
            return ""
        return f"T={self.temperature.item():.4g}"


def statuses(codes: Tensor) -> Status | list[Status]:
    """One, or a flat list."""
    found = [Status(code) for code in codes.flatten().tolist()]
    return found if codes.dim() else found[0]


def warn_about(status: Tensor) -> None:
    """Say which fits have no ordinary optimum."""
    for code in (Status.ZERO, Status.INFINITE, Status.ANY, Status.UNBOUNDED):
        if can_read(status) and bool((status == code).any()):
            many = (
                f" ({int((status == code).sum())} of {status.numel()} fits)"
                if status.numel() > 1
                else ""
            )
            warnings.warn(f"{code.sentence}{many}", ArgradWarning, stacklevel=3)


def resize_buffers(module: nn.Module, state: dict[str, Tensor], prefix: str, *_: object) -> None:
    """Let any fit be loaded into a layer that has not been fitted: a batch, another dtype."""
    for name, buffer in module.named_buffers(recurse=False):
        saved = state.get(prefix + name)
        if saved is not None and (saved.shape, saved.dtype) != (buffer.shape, buffer.dtype):
            setattr(module, name, torch.empty_like(saved, device=buffer.device))
