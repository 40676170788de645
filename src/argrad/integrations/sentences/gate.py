r"""Which tokens a sentence encoder may see: a random choice, learned by gradient.

A small *proxy* model gives every token a log-odds $\theta_i$ of being kept; a gate is drawn from
$z_i \sim \mathrm{Bernoulli}(\sigma(\theta_i))$ (or: k of the tokens) by any estimator of argrad. Gumbel-softmax over
the two classes keep and drop is the same as a relaxed bit: the difference of two Gumbels is logistic.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from argrad._checks import check_count, fail
from argrad._types import Generator
from argrad.estimators.base import Estimator
from argrad.estimators.hard_concrete import HardConcrete
from argrad.estimators.path import PathEstimator
from argrad.estimators.relaxed import Relaxed
from argrad.gibbs import Gibbs
from argrad.nn import _Annealed
from argrad.perturbed import Perturbed
from argrad.schedules import Constant, Exponential, Schedule
from argrad.structured import StructuredDistribution
from argrad.structures.bits import Bits
from argrad.structures.subset import Subset

DOCUMENT_SCHEDULE = Exponential(start=1.0, rate=1e-5, floor=0.5, every=1)
"""max(0.5, exp(-1e-5 t)), where t counts sentences: what the first such gate was trained with."""

SPECIAL_TOKENS = ("keep", "gate", "drop")
VIEWS = ("shared", "independent")
COUNTS = ("samples", "steps")


class Scores(NamedTuple):
    """What the gate decides on.

    Attributes:
        log_odds: of being kept, `(batch, length)`, 0 where the gate does not decide.
        open: where the gate decides.
        always: tokens that are kept in any case.
        tokens: everything that is not padding.
    """

    log_odds: Tensor
    open: Tensor
    always: Tensor
    tokens: Tensor

    def repeat(self, views: int) -> Scores:
        """The rows of the first view, then those of the second, ..."""
        return Scores(*(part.repeat(views, 1) for part in self))


def hard_keep(prob: Tensor, mask: Tensor, threshold: float = 0.5) -> Tensor:
    r"""The tokens to keep at inference: $p_i \ge$ `threshold`; if there is none, the one with the largest $p$.

    Padding is never kept, and never the largest.

    Args:
        prob: probabilities of being kept, `(*batch, length)`.
        mask: True (or 1) at tokens, False (or 0) at padding.
        threshold: keep from here on.

    Returns:
        bool, shape of `prob`; all False in a row that has no tokens.

    Examples:
        >>> import torch
        >>> from argrad.integrations.sentences import hard_keep
        >>> prob = torch.tensor([[0.9, 0.2, 0.5], [0.1, 0.3, 0.8]])
        >>> hard_keep(prob, torch.tensor([[1, 1, 1], [1, 1, 0]]))
        tensor([[ True, False,  True],
                [False,  True, False]])
    """
    if prob.shape != mask.shape:
        got = f"shape {tuple(mask.shape)}"
        raise fail("hard_keep", "mask", f"must have the shape of prob, {tuple(prob.shape)}", got, "")
    tokens = mask.bool()
    keep = (prob >= threshold) & tokens
    return keep | (_largest(prob, tokens) & ~keep.any(-1, keepdim=True))


def _largest(prob: Tensor, tokens: Tensor) -> Tensor:
    """True at the most probable token of each row (nowhere, if the row has none)."""
    best = prob.masked_fill(~tokens, -math.inf).argmax(-1, keepdim=True)
    return torch.zeros_like(tokens).scatter(-1, best, True) & tokens


class TokenGate(_Annealed):
    r"""A proxy model that decides which tokens the encoder may attend to.

    Args:
        proxy: a transformers model, whose last hidden states go through a small head, one log-odds a token;
            or any module `(input_ids, attention_mask) -> log-odds (batch, length)`.
        estimator: how the gate is drawn and trained. `Relaxed()` is soft Gumbel-softmax; also `GumbelST`,
            `StraightThrough`, `ReinMax`, `HardConcrete`, and score functions (`LeaveOneOut`, ...), which need
            `GatedEncoder.expected_loss`.
        schedule: a temperature or a schedule; replaces the estimator's own `tau`. None leaves that.
            `DOCUMENT_SCHEDULE` is $\max(0.5, e^{-t/10^5})$.
        count: what $t$ counts in `step`: `"samples"` (sentences) or `"steps"`. The count is in `state_dict`.
        keep_bias: added to the log-odds at the start; 2 keeps 88 % of the tokens.
        special_tokens: `"keep"` [CLS] and [SEP] always, `"gate"` them like any token, or `"drop"` them.
        special_ids: the ids of such tokens; `GatedEncoder.build` fills them in.
        k: instead of independent bits a `Subset(k)`: exactly k tokens a sentence (at most those there are), or, as
            a float, this fraction of them, rounded up, so that k is a tensor with a number for each sentence.
        views: in two views of a batch the gate is `"shared"`, or drawn for each (`"independent"`).

    Examples:
        >>> import torch, argrad as ag
        >>> from argrad.integrations.sentences import TokenGate
        >>> class Rare(torch.nn.Module):                    # a proxy by hand: keep large ids
        ...     def forward(self, input_ids, attention_mask): return input_ids / 10.0 - 5.0
        >>> gate = TokenGate(Rare(), ag.GumbelST(), special_ids=[1])
        >>> scores = gate.score(torch.tensor([[1, 5, 99, 0]]), torch.tensor([[1, 1, 1, 0]]))
        >>> gate.hard(scores), gate.sample(scores).shape
        (tensor([[1., 0., 1., 0.]]), torch.Size([1, 4]))

    References: [jang2017], [gao2021].
    """

    special_ids: Tensor

    def __init__(
        self,
        proxy: nn.Module,
        estimator: Estimator | None = None,
        schedule: float | Schedule | nn.Module | None = None,
        *,
        count: Literal["samples", "steps"] = "samples",
        keep_bias: float = 0.0,
        special_tokens: Literal["keep", "gate", "drop"] = "keep",
        special_ids: Sequence[int] = (),
        k: int | float | None = None,
        views: Literal["shared", "independent"] = "shared",
    ) -> None:
        estimator = Relaxed() if estimator is None else estimator
        own = schedule is None
        super().__init__(Constant(float(getattr(estimator, "tau", 1.0))) if own else schedule, "mode")
        _check_estimator(estimator, own)
        for name, value, allowed in (
            ("count", count, COUNTS),
            ("special_tokens", special_tokens, SPECIAL_TOKENS),
            ("views", views, VIEWS),
        ):
            check_choice("TokenGate", name, value, allowed)
        self.proxy, self.estimator, self.count, self.views = proxy, estimator, count, views
        self.keep_bias, self.special_tokens, self.k = keep_bias, special_tokens, _check_k(k)
        self.has_own_tau = own
        self.head = _head(proxy, keep_bias)
        ids = torch.tensor(sorted(set(special_ids)), dtype=torch.int64)
        self.register_buffer("special_ids", ids)

    @property
    def is_path(self) -> bool:
        """Whether a sample carries the gradient; if not, use `GatedEncoder.expected_loss`."""
        return isinstance(self.estimator, PathEstimator)

    def step(self, by: int = 1) -> None:
        """Advance the schedule, once an optimiser step: `by` sentences, or by 1 if `count="steps"`."""
        super().step(by if self.count == "samples" else 1)

    def score(self, input_ids: Tensor, attention_mask: Tensor) -> Scores:
        """Log-odds of the tokens of a batch, and where they count."""
        out = self.proxy(input_ids=input_ids, attention_mask=attention_mask)
        if self.head is not None:
            out = self.head(out.last_hidden_state)[..., 0]
        elif self.keep_bias:
            out = out + self.keep_bias
        if out.shape != input_ids.shape:
            rule = f"must give one log-odds a token, shape {tuple(input_ids.shape)}"
            raise fail("TokenGate", "proxy", rule, f"shape {tuple(out.shape)}", "")
        tokens = attention_mask.bool()
        special = torch.isin(input_ids, self.special_ids) & tokens
        if self.special_tokens == "gate":
            special = torch.zeros_like(special)
        open_ = tokens & ~special
        always = special if self.special_tokens == "keep" else torch.zeros_like(special)
        return Scores(out.masked_fill(~open_, 0.0), open_, always, tokens)

    def law(self, scores: Scores) -> StructuredDistribution:
        """The distribution of the gate: independent bits, or k of the tokens."""
        if self.k is None:
            return Gibbs(Bits(), scores.log_odds, mask=scores.open)
        structure = Subset(self._k(scores))
        gibbs = Gibbs(structure, scores.log_odds, mask=scores.open)
        if self.estimator.works_with(gibbs):
            return gibbs
        return Perturbed(structure, scores.log_odds, mask=scores.open)

    def _k(self, scores: Scores) -> Tensor:
        """How many tokens to keep, a number for each sentence; at least 1 where there is one."""
        there = scores.open.sum(-1)
        if isinstance(self.k, float):  # float64: 0.6 * 5 must be 3, not 3.0000001
            return torch.ceil(there.double() * self.k - 1e-9).long().clamp_min(1).minimum(there)
        assert self.k is not None
        return there.clamp_max(self.k)

    def keep_prob(self, scores: Scores) -> Tensor:
        """Probability that each token is kept, `(batch, length)`, with gradient; 0 at padding."""
        if self.k is not None:
            prob = Gibbs(Subset(self._k(scores)), scores.log_odds, mask=scores.open).mean
        elif isinstance(self.estimator, HardConcrete):
            prob = self._tuned().open_prob(scores.log_odds)
        else:
            prob = torch.sigmoid(scores.log_odds)
        return torch.where(scores.open, prob, scores.always.to(prob.dtype))

    def sample(self, scores: Scores, *, generator: Generator = None) -> Tensor:
        """A gate, `(batch, length)`, with the estimator's gradient; at least one token is kept."""
        if self.is_path:
            drawn = self._tuned().rsample(self.law(scores), generator=generator)
        else:
            drawn = self.law(scores).sample((), generator=generator)  # type: ignore[call-arg]
        return self.complete(drawn, scores)

    def hard(self, scores: Scores) -> Tensor:
        """The gate at inference, 0 or 1: `hard_keep`, or the k tokens of the largest log-odds."""
        if self.k is None:
            return hard_keep(self.keep_prob(scores), scores.tokens).to(scores.log_odds.dtype)
        chosen = Subset(self._k(scores)).argmax(scores.log_odds, mask=scores.open)
        return self.complete(chosen, scores)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, *, generator: Generator = None
    ) -> tuple[Tensor, Scores]:
        """A gate for a batch (drawn in training, `hard` in evaluation), and the scores behind it."""
        scores = self.score(input_ids, attention_mask)
        return (
            self.sample(scores, generator=generator) if self.training else self.hard(scores)
        ), scores

    def expectation(
        self,
        cost: Callable[[Tensor], Tensor],
        scores: Scores,
        *,
        per_row: bool = False,
        generator: Generator = None,
    ) -> Tensor:
        r"""$\mathbb{E}_z\, \mathrm{cost}(z)$ with the gradient of the estimator.

        Args:
            cost: gate `(batch, length)` -> the loss of the batch, a scalar, or `(batch,)` if `per_row`.
            scores: from `score`.
            per_row: score functions credit a row's gate with the loss of that row alone: less variance,
                and a bias where rows interact, as they do in a contrastive loss.
            generator: `torch.Generator`, `CounterRNG`, or None for torch's global generator.

        Returns:
            A scalar.
        """
        if self.is_path:
            return cost(self.sample(scores, generator=generator)).mean()
        law = self.law(scores) if per_row else self.law(scores).independent(1)

        def each(z: Tensor) -> Tensor:  # (S, batch, length) -> (S, batch) or (S,)
            return torch.stack([cost(self.complete(one, scores)) for one in z])

        return self.estimator(each, law, generator=generator).mean()

    def complete(self, drawn: Tensor, scores: Scores) -> Tensor:
        """Add the tokens that are always kept, and, where nothing is left, the most probable one."""
        gate = torch.where(scores.open, drawn, scores.always.to(drawn.dtype))
        empty = ~(gate > 0).any(-1, keepdim=True)
        rescue = (
            _largest(scores.log_odds.detach().masked_fill(~scores.open, -1e30), scores.tokens) & empty
        )
        return gate + rescue.to(gate.dtype)

    def _tuned(self) -> Any:
        """The estimator at the temperature of now."""
        if self.has_own_tau:
            return self.estimator
        return dataclasses.replace(self.estimator, tau=self.tau)  # type: ignore[type-var]

    def extra_repr(self) -> str:
        """Settings that are not submodules."""
        k = "" if self.k is None else f"k={self.k}, "
        own = "" if self.has_own_tau else self._shown_tau()
        return (
            f"{self.estimator!r}, {own}{k}special_tokens={self.special_tokens!r}, views={self.views!r}"
        )


def check_choice(call: str, name: str, value: object, allowed: Sequence[str]) -> None:
    """One of a few words, or a sentence that lists them."""
    if value not in allowed:
        words = ", ".join(f'"{a}"' for a in allowed)
        raise fail(call, name, f"must be one of {words}", value, "")


def _check_estimator(estimator: object, has_own_tau: bool) -> None:
    if not isinstance(estimator, Estimator):
        advice = "`argrad.Relaxed()` is soft Gumbel-softmax; `argrad list estimators` shows all."
        rule = "must be an estimator of argrad"
        raise fail("TokenGate", "estimator", rule, type(estimator).__name__, advice)
    fields = (
        {f.name for f in dataclasses.fields(estimator)}
        if dataclasses.is_dataclass(estimator)
        else set()
    )
    if not has_own_tau and "tau" not in fields:
        rule = f"must be None for {type(estimator).__name__}, which has no temperature"
        raise fail("TokenGate", "schedule", rule, "a schedule", "Leave it out.")


def _check_k(k: int | float | None) -> int | float | None:
    if isinstance(k, float):
        if not 0 < k <= 1:
            raise fail("TokenGate", "k", "must be an integer, or a fraction in (0, 1]", k, "")
        return k
    return (
        k
        if k is None
        else check_count("TokenGate", "k", k, 1, None, "It is the number of tokens to keep.")
    )


def _head(proxy: nn.Module, keep_bias: float) -> nn.Module | None:
    """Hidden states -> one log-odds a token; None for a proxy that returns those itself."""
    config = getattr(proxy, "config", None)
    if config is None:
        return None
    size = config.hidden_size
    last = nn.Linear(size, 1)
    nn.init.constant_(last.bias, keep_bias)
    return nn.Sequential(nn.Linear(size, size), nn.ReLU(), last)
