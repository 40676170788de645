r"""Methods by the name of their paper: each is a few public parts put together, nothing more."""

from __future__ import annotations

from torch import Tensor

from argrad._autograd import straight_through
from argrad._checks import check_count
from argrad._numerics import one_hot
from argrad._types import Bool, Float, Generator, Tau
from argrad.gibbs import Gibbs
from argrad.gumbel import gumbel_softmax, gumbel_topk
from argrad.noise import Noise
from argrad.perturbed import Perturbed
from argrad.regularizers import SuccessiveSoftmax
from argrad.structures.arborescence import Arborescence
from argrad.structures.chain_subset import ChainSubset
from argrad.structures.permutation import Permutation
from argrad.structures.spanning_tree import SpanningTree
from argrad.structures.subset import Subset


def gumbel_sinkhorn(
    scores: Float[Tensor, "*batch n n"],
    tau: Tau = 1.0,
    hard: bool = False,
    *,
    noise_scale: float = 1.0,
    mask: Bool[Tensor, "..."] | None = None,
    generator: Generator = None,
) -> Float[Tensor, "*batch n n"]:
    """A relaxed random permutation: Gumbel noise, Sinkhorn to a tolerance, assignment if `hard`.

    Examples:
        >>> import torch, argrad as ag
        >>> p = ag.presets.gumbel_sinkhorn(torch.zeros(3, 3), tau=0.5)
        >>> torch.allclose(p.sum(0), torch.ones(3), atol=1e-4)
        True

    References: [mena2018].
    """
    q = Perturbed(Permutation(), scores, noise_scale=noise_scale, mask=mask)
    return q.rsample(tau=tau, hard=hard, generator=generator)


def l2x(
    scores: Float[Tensor, "*batch n"],
    k: int,
    tau: Tau = 1.0,
    *,
    mask: Bool[Tensor, "..."] | None = None,
    generator: Generator = None,
) -> Float[Tensor, "*batch n"]:
    r"""A relaxed k-subset: the elementwise maximum of k independent Concretes.

    $$ z_i = \max_{j \le k} \mathrm{softmax}((\theta + \varepsilon^{j})/\tau)_i $$
    Not in the hull of k-subsets: two Concretes may choose the same item.

    Examples:
        >>> import torch, argrad as ag
        >>> ag.presets.l2x(torch.zeros(2, 10), 3, 0.5).shape
        torch.Size([2, 10])

    References: [chen2018].
    """
    check_count("l2x", "k", k, 1, scores.shape[-1], "It is the number of Concretes.")
    return gumbel_softmax(scores.expand(k, *scores.shape), tau, mask=mask, generator=generator).amax(0)


def softsub(
    scores: Float[Tensor, "*batch n"],
    k: int,
    tau: Tau = 1.0,
    hard: bool = False,
    *,
    mask: Bool[Tensor, "..."] | None = None,
    generator: Generator = None,
) -> Float[Tensor, "*batch n"]:
    """A relaxed k-subset by k successive softmaxes of Gumbel-perturbed scores.

    Examples:
        >>> import torch, argrad as ag
        >>> round(ag.presets.softsub(torch.zeros(10), 3, 0.5).sum().item(), 4)
        3.0

    References: [xie2019].
    """
    q = Perturbed(Subset(k), scores, mask=mask)
    return q.rsample(tau=tau, hard=hard, regularizer=SuccessiveSoftmax(), generator=generator)


def simple(
    scores: Float[Tensor, "*batch n"],
    k: int,
    *,
    mask: Bool[Tensor, "..."] | None = None,
    generator: Generator = None,
) -> Float[Tensor, "*batch n"]:
    """An exact k-subset sample whose gradient is that of the exact marginals (SIMPLE).

    Examples:
        >>> import torch, argrad as ag
        >>> ag.presets.simple(torch.zeros(10), 3).sum().item()
        3.0

    References: [ahmed2023].
    """
    q = Gibbs(Subset(k), scores, mask=mask)
    return straight_through(q.sample(generator=generator), q.mean)


def correlated_topk(
    scores: Float[Tensor, "*batch m"],
    k: int,
    tau: Tau = 1.0,
    hard: bool = False,
    *,
    generator: Generator = None,
) -> Float[Tensor, "*batch m"]:
    """A relaxed k-subset of a line that likes neighbours: scores of length 2n - 1 (`ChainSubset`).

    Examples:
        >>> import torch, argrad as ag
        >>> round(ag.presets.correlated_topk(torch.zeros(9), 2)[:5].sum().item(), 4)
        2.0

    References: [paulus2020].
    """
    return Perturbed(ChainSubset(k), scores).rsample(tau=tau, hard=hard, generator=generator)


def latent_tree(
    scores: Float[Tensor, "*batch n n"],
    tau: Tau = 1.0,
    hard: bool = False,
    *,
    mask: Bool[Tensor, "..."] | None = None,
    generator: Generator = None,
) -> Float[Tensor, "*batch n n"]:
    """A relaxed undirected spanning tree (the NRI experiment of stochastic softmax tricks).

    Examples:
        >>> import torch, argrad as ag
        >>> z = ag.presets.latent_tree(torch.zeros(4, 4), hard=True)
        >>> z.sum().item()
        6.0

    References: [paulus2020], [kipf2018].
    """
    return Perturbed(SpanningTree(), scores, mask=mask).rsample(tau=tau, hard=hard, generator=generator)


def latent_arborescence(
    scores: Float[Tensor, "*batch n n"],
    tau: Tau = 1.0,
    hard: bool = False,
    *,
    root: int | None = 0,
    noise: Noise | None = None,
    mask: Bool[Tensor, "..."] | None = None,
    generator: Generator = None,
) -> Float[Tensor, "*batch n n"]:
    """A relaxed rooted tree (the ListOps experiment of stochastic softmax tricks).

    Examples:
        >>> import torch, argrad as ag
        >>> z = ag.presets.latent_arborescence(torch.zeros(4, 4), hard=True)
        >>> z.sum(0)
        tensor([0., 1., 1., 1.])

    References: [paulus2020].
    """
    q = Perturbed(Arborescence(root=root), scores, noise=noise, mask=mask)
    return q.rsample(tau=tau, hard=hard, generator=generator)


def plackett_luce_topk(
    scores: Float[Tensor, "*batch n"],
    k: int,
    *,
    mask: Bool[Tensor, "..."] | None = None,
    generator: Generator = None,
) -> Float[Tensor, "*batch n"]:
    """A hard k-subset drawn without replacement (Gumbel-top-k), as a 0/1 vector.

    Examples:
        >>> import torch, argrad as ag
        >>> ag.presets.plackett_luce_topk(torch.zeros(10), 3).sum().item()
        3.0

    References: [kool2019].
    """
    top = gumbel_topk(scores.detach(), k, mask=mask, generator=generator)
    return one_hot(top.indices, scores.detach())
