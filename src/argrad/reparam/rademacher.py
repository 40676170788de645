r"""Signs."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.distributions import constraints
from torch.distributions.constraints import Constraint

from argrad import random
from argrad._types import Generator, Shape
from argrad.reparam.base import Reparameterized


class Rademacher(Reparameterized):
    r"""A fair sign: $z = 2\varepsilon - 1$, $\varepsilon \sim \mathrm{Bernoulli}(\tfrac12)$.

    Explicit noise, but nothing to differentiate: there is no parameter. For a sign whose probability is trained
    use the estimators of argrad (`Arm`, `LeaveOneOut`, ...).

    Args:
        batch_shape: shape of one draw.

    Examples:
        >>> import torch, argrad as ag
        >>> law = ag.reparam.Rademacher((3,))
        >>> z = law.sample((1000,), kind="antithetic")
        >>> z.sum(0), law.log_prob(z).exp()[0]
        (tensor([0., 0., 0.]), tensor([0.5000, 0.5000, 0.5000]))
    """

    has_rsample = False

    def __init__(
        self,
        batch_shape: Shape = (),
        dtype: torch.dtype | None = None,
        validate_args: bool | None = None,
    ) -> None:
        self.dtype = torch.get_default_dtype() if dtype is None else dtype
        super().__init__(torch.Size(batch_shape), validate_args=validate_args)

    @property
    def arg_constraints(self) -> dict[str, Constraint]:
        """There are no parameters."""
        return {}

    @property
    def support(self) -> Constraint:
        """Numbers, of which 1 and -1 are possible."""
        return constraints.real

    @property
    def _like(self) -> Tensor:
        return torch.empty((), dtype=self.dtype, device="cpu")

    def expand(self, batch_shape: Shape, _instance: Any = None) -> Rademacher:
        """The same law, repeated."""
        return Rademacher(batch_shape, self.dtype, self._validate_args)

    def _draw(self, shape: Shape, **options: Any) -> Tensor:
        return self._of_uniform(random.uniform(shape, **options))

    def _of_uniform(self, u: Tensor) -> Tensor:
        return (u >= 0.5).to(u.dtype)

    def _mirror(self, eps: Tensor) -> Tensor:
        return 1 - eps

    def transform(self, eps: Tensor) -> Tensor:
        r"""$2\varepsilon - 1$."""
        return (2 * self._check_noise(eps) - 1).to(self.dtype)

    def noise_of(self, z: Tensor, *, generator: Generator = None) -> Tensor:
        """$(z + 1)/2$."""
        return (z + 1) / 2

    def log_prob(self, value: Tensor) -> Tensor:
        r"""$-\log 2$ at 1 and -1, `-inf` elsewhere."""
        return torch.where(value.abs() == 1, 0.5, 0.0).to(value.dtype).log()

    @property
    def mean(self) -> Tensor:
        """0."""
        return torch.zeros(self.batch_shape, dtype=self.dtype)

    @property
    def variance(self) -> Tensor:
        """1."""
        return torch.ones(self.batch_shape, dtype=self.dtype)

    def entropy(self) -> Tensor:
        r"""$\log 2$."""
        return torch.full(self.batch_shape, 2.0, dtype=self.dtype).log()
