r"""InfoNCE (ranking NCE): find the partner of each query among others."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import normalize

from argrad._checks import check_floating, check_mask, check_scores, check_tau, fail, fits
from argrad._numerics import widen
from argrad._types import Bool, Float
from argrad.losses._contrast import Scores, check_loss, ranking


@dataclass(frozen=True)
class InfoNCE:
    r"""Which of these keys belongs to the query? Cross-entropy over one positive and $m$ negatives.

    $$ L = -\log \frac{e^{s_0}}{e^{s_0} + \sum_{j=1}^{m} e^{s_j}}, \qquad
       s_j = \frac{\langle x, y_j \rangle}{\tau} - \log q_j $$
    Without `log_q` the optimum is $s = \log p(y \mid x) / q(y)$ up to a function of $x$, the pointwise
    mutual information when the negatives come from the marginal, and $\log(m + 1) - \mathbb{E} L$ is a
    lower bound of the mutual information (never above $\log(m + 1)$). With `log_q` it is ranking NCE:
    $s \to \log p(y \mid x)$ up to a function of $x$, for every $m$.

    Args:
        tau: temperature.
        cosine: compare directions only: queries and keys are scaled to length 1.

    Examples:
        >>> import torch, argrad as ag
        >>> loss = ag.InfoNCE(tau=0.1, cosine=True)
        >>> text, image = torch.randn(32, 16), torch.randn(32, 16)
        >>> (loss(text, image) + loss(image, text)).mean().shape     # each against the other 31 (CLIP)
        torch.Size([])
        >>> loss(text, image, negatives=torch.randn(100, 16)).shape  # a queue that all share (MoCo)
        torch.Size([32])
        >>> loss(text, image, negatives=torch.randn(32, 7, 16)).shape
        torch.Size([32])

    References: [oord2018], [ma2018], [jozefowicz2016].
    """

    tau: float = 1.0
    cosine: bool = False

    def __post_init__(self) -> None:
        check_tau("InfoNCE", self.tau, torch.Size())

    def __call__(
        self,
        query: Float[Tensor, "*batch d"],
        key: Float[Tensor, "*batch d"],
        negatives: Float[Tensor, "*others d"] | None = None,
        *,
        log_q: tuple[Tensor, Tensor] | Tensor | None = None,
        mask: Bool[Tensor, "..."] | None = None,
    ) -> Float[Tensor, "*batch"]:
        r"""The loss of each item.

        Args:
            query: $x$.
            key: $y_0$, the partner of each query.
            negatives: $y_1, \dots, y_m$: `(m, d)` for all queries or `(*batch, m, d)`. None takes the keys
                of the other queries.
            log_q: log-probabilities under the law of the negatives: of the keys, and of the negatives
                (which None stands for when `negatives` is None, as they are the keys).
            mask: bool, broadcasts to `(*batch, m)`; False where a negative must not be compared (it is
                another view of the same thing).
        """
        self._check(query, key, negatives)
        dtype = torch.promote_types(widen(query).dtype, widen(key).dtype)
        x, y = self._prepare(query, dtype), self._prepare(key, dtype)
        size = math.prod(key.shape[:-1])
        others = y.reshape(size, y.shape[-1]) if negatives is None else self._prepare(negatives, dtype)
        first = (x * y).sum(-1)
        rest = x @ others.mT if others.dim() == 2 else (others @ x[..., None])[..., 0]
        if mask is not None:
            check_mask("InfoNCE", mask, rest.shape)
        if negatives is None:
            mask = _others_only(query, mask, rest.shape)
        return self.of_scores(first, rest, log_q=log_q, mask=mask).to(query.dtype)

    def of_scores(
        self,
        positive: Float[Tensor, "*batch"],
        negative: Float[Tensor, "*batch m"],
        *,
        log_q: tuple[Tensor, Tensor] | Tensor | None = None,
        mask: Bool[Tensor, "..."] | None = None,
    ) -> Float[Tensor, "*batch"]:
        """The same from scores (before division by `tau`) that some other model has computed."""
        check_floating("InfoNCE", "positive", positive)
        check_floating("InfoNCE", "negative", negative)
        if negative.dim() != positive.dim() + 1 or not fits(negative.shape[:-1], positive.shape):
            rule = f"must have shape {(*positive.shape, 'm')}"
            raise fail(
                "InfoNCE", "negative", rule, f"shape {tuple(negative.shape)}", "m scores an item."
            )
        if mask is not None:
            check_mask("InfoNCE", mask, negative.shape)
        check_scores("InfoNCE", "positive", positive)
        check_scores("InfoNCE", "negative", negative)
        first, rest = widen(positive) / self.tau, widen(negative) / self.tau
        if log_q is not None:
            of_first, of_rest = log_q if isinstance(log_q, tuple) else (log_q, log_q.reshape(-1))
            first, rest = first - of_first.to(first), rest - of_rest.to(rest)
        loss = ranking(Scores(first, rest), mask)
        return check_loss("InfoNCE", loss, positive=first, negative=rest).to(positive.dtype)

    def _prepare(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        x = x.to(dtype)
        return normalize(x, dim=-1) if self.cosine else x

    def _check(self, query: Tensor, key: Tensor, negatives: Tensor | None) -> None:
        check_floating("InfoNCE", "query", query)
        check_floating("InfoNCE", "key", key)
        if query.dim() < 1 or key.shape != query.shape:
            rule = f"must have the shape of `query`, {tuple(query.shape)}"
            raise fail("InfoNCE", "key", rule, f"shape {tuple(key.shape)}", "One partner a query.")
        if negatives is None:
            if query.shape[:-1].numel() == 1:
                advice = "A single query has no others to compare with: give `negatives`."
                raise fail("InfoNCE", "query", "must hold at least two items", "one", advice)
            return
        check_floating("InfoNCE", "negatives", negatives)
        d, batch = query.shape[-1], query.shape[:-1]
        if negatives.shape[-1:] != (d,) or (negatives.dim() != 2 and negatives.shape[:-2] != batch):
            rule = f"must have shape (m, {d}) or {(*batch, 'm', d)}"
            raise fail("InfoNCE", "negatives", rule, f"shape {tuple(negatives.shape)}", "")


def _others_only(query: Tensor, mask: Tensor | None, shape: torch.Size) -> Tensor:
    """Each query is compared with the keys of the others, `(*batch, size)`."""
    others = ~torch.eye(shape[-1], dtype=torch.bool, device=query.device).reshape(shape)
    return others if mask is None else others & mask
