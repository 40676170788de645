r"""The exponential family over a structure."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.distributions.kl import register_kl

from argrad import random
from argrad._checks import check_possible, check_shape, refuse_meta
from argrad._errors import InputError, UnsupportedError
from argrad._types import Float, Generator, Shape
from argrad.structured import StructuredDistribution


class Gibbs(StructuredDistribution):
    r"""$p(z) = \exp(\langle\theta, z\rangle - A(\theta))$ over the vertices of a structure.

    Exact samples, log-probabilities, entropies and divergences wherever the structure has a
    log-partition. Not the law of perturb-and-argmax (`Perturbed`), except for one-hots with Gumbel
    noise and bits with logistic noise.

    Args:
        structure: the set Z.
        scores: $\theta$, shape `(*batch, *event)`.
        mask: True = allowed, broadcastable to `scores`.

    Examples:
        >>> import torch, argrad as ag
        >>> q = ag.Gibbs(ag.Subset(2), torch.zeros(3, 5))
        >>> z = q.sample((7,), generator=torch.Generator().manual_seed(0))
        >>> z.shape, q.log_prob(z).shape, round(q.entropy()[0].exp().item(), 3)
        (torch.Size([7, 3, 5]), torch.Size([7, 3]), 10.0)

    References: [wainwright2008].
    """

    has_enumerate_support = True

    def sample(self, sample_shape: Shape = (), *, generator: Generator = None) -> Tensor:
        """Exact draws, shape `sample_shape + batch_shape + event_shape`, without gradient."""
        random.check_generator("Gibbs.sample", generator)
        shape = check_shape("Gibbs.sample", "sample_shape", sample_shape)
        z = self.structure._sample(self._cleaned.detach(), shape, generator)
        return z.to(self.scores.dtype)

    def log_prob(self, value: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        r"""$\langle\theta, z\rangle - A(\theta)$; shape of the leading dims of `value` and the batch."""
        self.structure._check_vertices("Gibbs.log_prob", value)
        return self._log_prob(value)

    def _log_prob(self, z: Tensor) -> Tensor:
        """`log_prob` of vertices that need no check, such as its own samples."""
        inner = self.structure._inner(self._cleaned, z.to(self._cleaned.dtype))
        log_z = self.structure._log_partition(self._cleaned)
        check_possible("Gibbs.log_prob", log_z)
        return self._sum_joined((inner - log_z).to(self.scores.dtype))

    def entropy(self) -> Tensor:
        """Shape of the batch."""
        return self._sum_joined(self.structure._entropy(self._cleaned).to(self.scores.dtype))

    def log_partition(self) -> Tensor:
        r"""$A(\theta)$, shape of the batch."""
        return self._sum_joined(self.structure._log_partition(self._cleaned).to(self.scores.dtype))

    @property
    def mean(self) -> Tensor:
        r"""$\mathbb{E} z$: the marginals."""
        return self.structure._marginals(self._cleaned).to(self.scores.dtype)

    @property
    def variance(self) -> Tensor:
        """The variance of each part, a Bernoulli variable."""
        mean = self.mean
        return mean * (1 - mean)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """Every vertex, `(count, *batch, *event)`; for joined dimensions every combination."""
        dims = self.structure.event_dims
        own = self.scores.shape[self.scores.dim() - dims :]
        z = self.structure.enumerate(own, dtype=self.scores.dtype, device=self.scores.device)
        if self.mask is not None:
            z = z[self._allowed_by_mask(z, own)]
        copies = self.event_shape[: self._joined].numel()
        if len(z) ** copies > 10**6:
            raise UnsupportedError(
                f"`Gibbs.enumerate_support` would list {len(z)}^{copies} combinations. "
                "Use `sample`, or an estimator that enumerates one variable at a time."
            )
        if copies != 1:
            index = torch.cartesian_prod(*[torch.arange(len(z), device=z.device)] * copies)
            z = z[index].reshape(-1, *self.event_shape)
        else:
            z = z.reshape(-1, *self.event_shape)
        z = z.reshape(len(z), *(1,) * len(self.batch_shape), *self.event_shape)
        return z.expand(len(z), *self.batch_shape, *self.event_shape) if expand else z

    def _allowed_by_mask(self, z: Tensor, own: torch.Size) -> Tensor:
        """Vertices without a forbidden part; the mask must be the same for the whole batch."""
        assert self.mask is not None
        refuse_meta("Gibbs.enumerate_support", "mask", self.mask)
        flat = self.mask.expand(self.scores.shape).reshape(-1, *own)
        if not len(flat):  # no items, so that every support is theirs
            return torch.ones(len(z), dtype=torch.bool, device=z.device)
        if not bool((flat == flat[:1]).all()):
            raise InputError(
                "`Gibbs.enumerate_support` needs the same mask for every item of the batch, because the "
                "items would otherwise have supports of different sizes. Enumerate them one by one."
            )
        return ~((z != 0) & ~flat[0]).flatten(1).any(-1)


@register_kl(Gibbs, Gibbs)
def _kl_gibbs(p: Gibbs, q: Gibbs) -> Tensor:
    r"""$\langle\theta_p - \theta_q, \mu_p\rangle - A(\theta_p) + A(\theta_q)$."""
    if p.structure != q.structure or p.joined != q.joined:
        raise UnsupportedError(
            f"The KL divergence needs two Gibbs laws over the same structure; got {p!r} and {q!r}."
        )
    mean = p.structure.marginals(p.scores, mask=p.mask)
    inner_p = p.structure._inner(p.structure._clean("kl", p.scores, p.mask), mean)
    inner_q = q.structure._inner(q.structure._clean("kl", q.scores, q.mask), mean)
    return p._sum_joined(inner_p - inner_q) - p.log_partition() + q.log_partition()
