r"""The tree of sequences that a step function spans, and how to walk down it.

A node is a sequence of tokens; its children are one token longer. `step` gives the logits of the next
token at many nodes at once, and carries whatever state the model needs (a cache, a hidden vector). Every
search and every sampler of this package walks with a `Decoder`, so that end of sequence, masks,
temperature and processors mean the same thing everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias, TypedDict, Unpack

import torch
from torch import Tensor

from argrad._checks import check_count, check_mask, check_tau, fail, refuse_meta
from argrad._errors import InputTypeError
from argrad._numerics import widen
from argrad.sequences import _refusals as refuse
from argrad.sequences.state import select_rows

Step: TypeAlias = Callable[[Any, Any], tuple[Tensor, Any]]
Processor: TypeAlias = Callable[[Tensor, Tensor], Tensor]
Eos: TypeAlias = int | Sequence[int] | None
_TINY = torch.finfo(torch.float32).smallest_normal  # a temperature that has an inverse


class Options(TypedDict, total=False):
    """What every search and sampler takes beside `step`, `state`, `eos` and `max_len`.

    Attributes:
        batch_size: number of rows that the first call of `step` answers for; default: as many as it does.
        min_len: no end of sequence before this many tokens (itself included).
        tau: temperature; logits are divided by it first.
        mask: tokens that may be used at all, True = allowed, broadcastable to `(batch, vocabulary)`.
        processors: functions `(tokens (n, t), logits (n, vocabulary)) -> logits`, one after the other
            after temperature and mask; `tokens` holds the prefix too. Hugging Face's logits processors are
            such functions.
        stop: `(tokens (n, t)) -> bool (n,)`, a further reason for a sequence to be complete, next to
            `eos`; `tokens` does not hold the prefix.
        prefix: tokens `(batch, p)` that each row starts with; probabilities are conditional on them.
        rows: the number of each row, `(batch,)` integers, to which its noise belongs: a row that keeps
            its number keeps its sample, wherever it stands; default 0, 1, 2, ...
        pad: what stands behind the end of a sequence; default the first `eos`, else 0.
        reorder: `(state, index) -> state`, the state of rows `index`; default: `index_select(0, index)` on
            each tensor of the state, in whatever tuples, lists and dictionaries they stand.
    """

    batch_size: int | None
    min_len: int
    tau: float
    mask: Tensor | None
    processors: Sequence[Processor]
    stop: Callable[[Tensor], Tensor] | None
    prefix: Tensor | None
    rows: Tensor | None
    pad: int | None
    reorder: Callable[[Any, Tensor], Any]


class Front(NamedTuple):
    """Logits of the next token `(batch, m, vocabulary)` at m nodes a row, and the state of all of them."""

    logits: Tensor
    state: Any


@dataclass(frozen=True, kw_only=True)
class Decoder:
    """A step function with its settings, all checked."""

    call: str
    step: Step
    state: Any
    eos: tuple[int, ...]
    max_len: int
    min_len: int
    tau: float
    mask: Tensor | None
    processors: tuple[Processor, ...]
    stop: Callable[[Tensor], Tensor] | None
    prefix: Tensor | None
    rows: Tensor | None
    pad: int
    reorder: Callable[[Any, Tensor], Any]
    batch_size: int | None

    def start(self) -> Front:
        """The root of each row (after its prefix)."""
        logits, state = self._step(None, self.state, self.batch_size)
        self._check_sizes(*logits.shape)
        for i in range(0 if self.prefix is None else self.prefix.shape[1]):
            logits, state = self._step(self.prefix[:, i], state, len(logits))  # type: ignore[index]
        return self._front(logits, state, logits.new_empty(len(logits), 1, 0, dtype=torch.int64))

    def next(self, front: Front, parents: Tensor, tokens: Tensor) -> Front:
        """One token further: node j of row b comes from `parents[b, j]`, and is `tokens[b, j]` now."""
        state = self.select(front, parents)
        last = tokens[..., -1].reshape(-1).clamp(0, front.logits.shape[-1] - 1)  # `pad` may be anything
        logits, state = self._step(last, state, parents.numel())
        return self._front(logits, state, tokens)

    def select(self, front: Front, parents: Tensor) -> Any:
        """The state of nodes `parents[b, j]` of each row b."""
        batch, width = front.logits.shape[:2]
        first = torch.arange(batch, device=parents.device)[:, None] * width
        return self.reorder(front.state, (first + parents).reshape(-1))

    def ends(self, tokens: Tensor) -> Tensor:
        """Which sequences `(batch, m, t)` are complete; `(batch, m)`."""
        last = tokens[..., -1]
        done = torch.zeros_like(last, dtype=torch.bool)
        for token in self.eos:
            done |= last == token
        if self.stop is None:
            return done
        return done | self.stop(tokens.flatten(0, 1)).view(done.shape).bool()

    def row_numbers(self, front: Front) -> Tensor:
        """The number of each row, `(batch,)`."""
        batch, device = front.logits.shape[0], front.logits.device
        return torch.arange(batch, device=device) if self.rows is None else self.rows.to(device)

    def _step(self, tokens: Tensor | None, state: Any, rows: int | None) -> tuple[Tensor, Any]:
        answer = self.step(tokens, state)
        refuse.check_answer(self.call, answer, rows)
        return answer

    def _front(self, logits: Tensor, state: Any, tokens: Tensor) -> Front:
        """Temperature, mask, shortest length, processors, in this order."""
        batch, m, length = tokens.shape
        x = widen(logits).view(batch, m, logits.shape[-1])
        if self.tau != 1.0:
            peak = x.detach().amax(-1, keepdim=True)
            # from the top down: what overflows has probability 0
            x = (x - peak.masked_fill(peak.isinf(), 0.0)) / max(self.tau, _TINY)
        if self.mask is not None:
            x = x.masked_fill(~self.mask.expand(batch, x.shape[-1])[:, None], -math.inf)
        if self.eos and length + 1 < self.min_len:
            x = x.index_fill(-1, torch.tensor(self.eos, device=x.device), -math.inf)
        if self.processors:
            x = self._process(x.flatten(0, 1), tokens).view(x.shape)
        return Front(x, state)

    def _process(self, x: Tensor, tokens: Tensor) -> Tensor:
        if self.prefix is not None:
            start = self.prefix[:, None].expand(-1, tokens.shape[1], -1)
            tokens = torch.cat([start, tokens], -1)
        shape, flat = x.shape, tokens.flatten(0, 1)
        for processor in self.processors:
            x = processor(flat, x)
        if not isinstance(x, Tensor) or x.shape != shape:
            raise refuse.bad_processor(self.call, x, shape)
        return widen(x)

    def _check_sizes(self, batch: int, size: int) -> None:
        """What the options must fit, known after the first answer."""
        outside = [token for token in self.eos if not 0 <= token < size]
        if outside:
            rule = f"must be tokens from 0 to {size - 1}, as `step` returns {size} logits a row"
            raise fail(
                self.call, "eos", rule, outside[0], "`None` means that no token ends a sequence."
            )
        if self.mask is not None:
            check_mask(self.call, self.mask, torch.Size([batch, size]))
        for name, value in (("prefix", self.prefix), ("rows", self.rows)):
            if value is not None and len(value) != batch:
                rule = f"must have an entry for each of the {batch} rows"
                raise fail(self.call, name, rule, f"shape {tuple(value.shape)}", "")


def make_decoder(
    call: str, step: Step, state: Any, eos: Eos, max_len: int, **options: Unpack[Options]
) -> Decoder:
    """Check everything that can be checked before the first step."""
    refuse.check_options(call, options, tuple(Options.__annotations__))
    if not callable(step):
        raise InputTypeError(
            f"`{call}(step=...)` must be a function `(tokens, state) -> (logits, state)`; "
            f"got {type(step).__name__}."
        )
    ends = refuse.check_eos(call, eos)
    max_len = check_count(call, "max_len", max_len, 1, None, "It counts the tokens after the prefix.")
    min_len = check_count(
        call, "min_len", options.get("min_len", 0), 0, max_len, "It must not exceed `max_len`."
    )
    pad = options.get("pad")
    processors = options.get("processors", ())
    return Decoder(
        call=call,
        step=step,
        state=state,
        eos=ends,
        max_len=max_len,
        min_len=min_len,
        tau=_number(call, options.get("tau", 1.0)),
        mask=options.get("mask"),
        processors=(processors,) if callable(processors) else tuple(processors),
        stop=options.get("stop"),
        prefix=refuse.check_tokens(call, "prefix", options.get("prefix"), 2),
        rows=refuse.check_tokens(call, "rows", options.get("rows"), 1),
        pad=int(pad) if pad is not None else ends[0] if ends else 0,
        reorder=options.get("reorder", select_rows),
        batch_size=options.get("batch_size"),
    )


def _number(call: str, tau: object) -> float:
    tau = check_tau(call, tau, torch.Size(), any_positive=True)
    if isinstance(tau, Tensor):
        refuse_meta(call, "tau", tau)
    return float(tau)
