r"""How strange logits look. Every score here is *larger for outliers*, so that all can be compared alike."""

from __future__ import annotations

import torch
from torch import Tensor

from argrad._checks import check_any_allowed, check_event, check_floating, check_scores, fail
from argrad._numerics import logsumexp, widen
from argrad._types import Float


def _check(call: str, logits: Tensor) -> Tensor:
    check_floating(call, "logits", logits)
    check_event(call, "logits", logits)
    check_scores(call, "logits", logits)
    return widen(logits)


def max_softmax(logits: Float[Tensor, "*batch classes"]) -> Float[Tensor, "*batch"]:
    r"""What is left for all other classes: $1 - \max_k p_k$.

    Summed over the others, not subtracted from 1: in float32 two confidences above $1 - 10^{-7}$ would
    otherwise tie, and trained classifiers live there.

    Examples:
        >>> import torch, argrad as ag
        >>> ag.openset.max_softmax(torch.tensor([[0.0, 0.0], [50.0, 0.0]]))
        tensor([5.0000e-01, 1.9287e-22])

    References: [hendrycks2017].
    """
    z = _check("max_softmax", logits)
    check_any_allowed("max_softmax", z)
    top = z.argmax(-1, keepdim=True)
    # how much less likely than the winner, all together; the winner itself is left out
    others = torch.exp(z - z.gather(-1, top)).scatter(-1, top, 0.0).sum(-1)
    return (others / (1 + others)).to(logits.dtype)


def max_logit(logits: Float[Tensor, "*batch classes"]) -> Float[Tensor, "*batch"]:
    r"""The largest logit, negated: $-\max_k f_k$.

    Examples:
        >>> import torch, argrad as ag
        >>> ag.openset.max_logit(torch.tensor([[1.0, 3.0], [0.0, 0.5]]))
        tensor([-3.0000, -0.5000])

    References: [hendrycks2022].
    """
    return -_check("max_logit", logits).amax(-1).to(logits.dtype)


def entropy(logits: Float[Tensor, "*batch classes"]) -> Float[Tensor, "*batch"]:
    r"""The entropy of the prediction, $-\sum_k p_k \log p_k$.

    Examples:
        >>> import torch, argrad as ag
        >>> ag.openset.entropy(torch.tensor([[0.0, 0.0], [50.0, 0.0]]))
        tensor([6.9315e-01, 9.8366e-21])

    References: [hendrycks2017].
    """
    z = _check("entropy", logits)
    check_any_allowed("entropy", z)
    top = z.argmax(-1, keepdim=True)
    gap = z - z.gather(-1, top)
    others = torch.exp(gap).scatter(-1, top, 0.0).sum(-1, keepdim=True)
    log_p = gap - torch.log1p(others)  # of the winner: -log1p(others), not what rounding leaves of 1
    p = log_p.exp()
    never = p == 0
    return -torch.where(never, 0.0, p * log_p.masked_fill(never, 0.0)).sum(-1).to(logits.dtype)


def energy(logits: Float[Tensor, "*batch classes"]) -> Float[Tensor, "*batch"]:
    r"""The free energy, $-\log \sum_k e^{f_k}$: small where some class claims the input.

    Unlike a probability it knows the size of the logits, which the softmax divides away.

    Examples:
        >>> import torch, argrad as ag
        >>> ag.openset.energy(torch.tensor([[0.0, 0.0], [50.0, 50.0]]))
        tensor([ -0.6931, -50.6931])

    References: [liu2020].
    """
    return -logsumexp(_check("energy", logits)).to(logits.dtype)


def reject(logits: Float[Tensor, "*batch classes_and_one"]) -> Float[Tensor, "*batch"]:
    r"""The log-odds of the last class, which stands for "none of these", against all others.

    For classifiers trained with `ConfidenceLoss("reject")`.

    Examples:
        >>> import torch, argrad as ag
        >>> ag.openset.reject(torch.tensor([[3.0, 0.0, 0.0], [0.0, 0.0, 3.0]]))
        tensor([-3.0486,  2.3069])

    References: [vernekar2019].
    """
    z = _check("reject", logits)
    if z.shape[-1] < 2:
        advice = "The last class stands for none of the others."
        raise fail("reject", "logits", "must have at least two classes", z.shape[-1], advice)
    check_any_allowed("reject", z)
    return (z[..., -1] - logsumexp(z[..., :-1])).to(logits.dtype)
