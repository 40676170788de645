r"""Random variables as functions of explicit noise: $z = g(\varepsilon, \theta)$, $\varepsilon \sim p(\varepsilon)$.

Each law here *is* the law of the same name in `torch.distributions` (densities, moments, KL divergences), and
can besides be taken apart: `noise` draws $\varepsilon$ (independent, antithetic, Sobol or stratified),
`transform` makes $z$ of it, `noise_of` goes back. So common random numbers, couplings and quasi-Monte Carlo
work for every one of them, and the pathwise gradient is what `backward` gives.
"""

from __future__ import annotations

from argrad.reparam import divergences as _divergences  # registers the pairs that torch lacks  # noqa: F401
from argrad.reparam.base import Reparameterized, two_sided, uniform_of
from argrad.reparam.gaussian import BoxMuller, LogNormal, MultivariateNormal, Normal
from argrad.reparam.location_scale import Cauchy, Gumbel, Laplace, Logistic, LogRatioLaplace
from argrad.reparam.positive import Exponential, InverseGamma, Kumaraswamy, Weibull
from argrad.reparam.rademacher import Rademacher

__all__ = [
    "BoxMuller",
    "Cauchy",
    "Exponential",
    "Gumbel",
    "InverseGamma",
    "Kumaraswamy",
    "Laplace",
    "LogNormal",
    "LogRatioLaplace",
    "Logistic",
    "MultivariateNormal",
    "Normal",
    "Rademacher",
    "Reparameterized",
    "Weibull",
    "two_sided",
    "uniform_of",
]
