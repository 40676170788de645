r"""SimCSE's loss, and the two measures of what it does: how close partners are, and how spread out all are."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import normalize

from argrad._types import Float
from argrad.losses.info_nce import InfoNCE


def simcse_loss(
    anchor: Float[Tensor, "n d"],
    positive: Float[Tensor, "n d"],
    negative: Float[Tensor, "n d"] | None = None,
    *,
    tau: float = 0.05,
    hard_negative_weight: float = 0.0,
) -> Tensor:
    r"""InfoNCE of cosines within a batch, with hard negatives if there are any; the mean over the anchors.

    $$ L_i = -\log \frac{e^{\cos(a_i, p_i)/\tau}}
       {\sum_j e^{\cos(a_i, p_j)/\tau} + \sum_j e^{\cos(a_i, n_j)/\tau + w [i = j]}} $$

    Unsupervised, `anchor` and `positive` are one sentence under two dropout masks; supervised, a premise, what it
    entails and what contradicts it.

    Args:
        anchor: $a$.
        positive: $p$, the partner of each.
        negative: $n$, the hard negative of each.
        tau: temperature of the cosines.
        hard_negative_weight: $w$, added to the logit of an anchor's own hard negative; 0 treats it as any other.

    Examples:
        >>> import torch
        >>> x = torch.eye(4)
        >>> round(simcse_loss(x, x, tau=1.0).item(), 4), round(simcse_loss(x, x, x, tau=1.0).item(), 4)
        (0.7437, 1.4368)

    References: [gao2021], [oord2018].
    """
    loss = InfoNCE(tau=tau)
    a, p = normalize(anchor, dim=-1), normalize(positive, dim=-1)
    own = torch.eye(len(a), dtype=torch.bool, device=a.device)
    scores, others = a @ p.mT, ~own
    first = scores.diagonal()
    if negative is not None:
        hard = a @ normalize(negative, dim=-1).mT + tau * hard_negative_weight * own
        scores, others = torch.cat([scores, hard], -1), torch.cat([others, torch.ones_like(own)], -1)
    return loss.of_scores(first, scores, mask=others).mean()


def alignment(first: Float[Tensor, "n d"], second: Float[Tensor, "n d"]) -> Tensor:
    r"""Mean squared distance of partners on the sphere, $\mathbb{E} \|a - p\|^2$; 0 is perfect.

    Examples:
        >>> import torch
        >>> alignment(torch.eye(2), -torch.eye(2))
        tensor(4.)

    References: [wang2020].
    """
    return (normalize(first, dim=-1) - normalize(second, dim=-1)).square().sum(-1).mean()


def uniformity(x: Float[Tensor, "n d"], t: float = 2.0) -> Tensor:
    r"""How evenly embeddings cover the sphere, $\log \mathbb{E}_{i \neq j} e^{-t \|x_i - x_j\|^2}$; lower is more even.

    Examples:
        >>> import torch
        >>> uniformity(torch.tensor([[1.0, 0.0], [-1.0, 0.0]]))
        tensor(-8.)

    References: [wang2020].
    """
    x = normalize(x, dim=-1)
    # of unit vectors |x - y|^2 = 2 - 2 <x, y>; pairs i < j
    i, j = torch.triu_indices(len(x), len(x), 1, device=x.device)
    cosine = (x @ x.mT)[i, j]
    return (-t * (2 - 2 * cosine)).logsumexp(0) - torch.log(torch.tensor(float(len(i))))
