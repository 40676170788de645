"""What the walkers check about a step function and its answers, and the sentences they say."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from argrad._checks import can_read, fail, is_integral, refuse_meta
from argrad._errors import InputError, InputTypeError, UnsupportedError

_REASONS = {
    "length_penalty": "dividing by the length changes which sequences win the race, so that they are no "
    "longer a sample and have no unbiased weights. Sort the result by "
    "`sample.log_prob / sample.length` if a list for the eye is wanted",
    "early_stopping": "stopping before every beam is complete drops sequences that would have won. "
    "Lower `max_len`: that cuts the model, not the sample",
}


def unsupported(call: str, name: str, value: object) -> UnsupportedError:
    """The sentence for an option that would make the result something else than a sample."""
    return UnsupportedError(f"`{call}({name}={value!r})` is refused: {_REASONS[name]}.")


def check_options(call: str, options: Mapping[str, object], known: tuple[str, ...]) -> None:
    """Every option has a meaning here."""
    for name, value in options.items():
        if name in _REASONS:
            raise unsupported(call, name, value)
        if name not in known:
            raise InputTypeError(f"`{call}` has no option `{name}`; it has {', '.join(known)}.")


def check_tokens(call: str, name: str, value: object, dims: int) -> Tensor | None:
    """Integers `(batch,)`, `(batch, p)` or `(batch, k, length)`, or nothing."""
    if value is None:
        return None
    if not isinstance(value, Tensor) or not is_integral(value) or value.dim() != dims:
        got = f"{value.dtype}, shape {tuple(value.shape)}" if isinstance(value, Tensor) else repr(value)
        shape = {1: "(batch,)", 2: "(batch, length)", 3: "(batch, k, length)"}[dims]
        raise fail(call, name, f"must be an integer tensor of shape {shape}", got, "")
    return value.long()


def check_eos(call: str, eos: Any) -> tuple[int, ...]:
    """The tokens that end a sequence."""
    if eos is None:
        return ()
    try:
        return tuple(operator.index(token) for token in ((eos,) if isinstance(eos, int) else eos))
    except TypeError:
        advice = "None lets `max_len` alone end a sequence."
        raise fail(
            call, "eos", "must be a token, several of them, or None", repr(eos), advice
        ) from None


def check_vocabulary(call: str, name: str, tokens: Tensor, logits: torch.Size) -> None:
    """As many rows as the logits `(batch, m, vocabulary)`, and tokens that they know."""
    batch, _, vocabulary = logits
    if len(tokens) != batch:
        got = f"{len(tokens)} rows"
        raise fail(call, name, f"must have the {batch} rows that `step` answers for", got, "")
    if tokens.numel() and can_read(tokens):
        low, high = torch.aminmax(tokens)
        if low < 0 or high >= vocabulary:
            rule = f"must hold tokens from 0 to {vocabulary - 1}"
            raise fail(
                call, name, rule, tokens, "`step` has no logits for others; pad with any of these."
            )


def check_answer(call: str, answer: object, rows: int | None) -> None:
    """What `step` returns: logits `(rows, vocabulary)` and a state."""
    if not isinstance(answer, tuple) or len(answer) != 2:
        raise InputTypeError(
            f"`{call}(step=...)` must return `(logits, state)`; got {type(answer).__name__}. "
            "Return `(logits, None)` if there is no state."
        )
    logits = answer[0]
    if not isinstance(logits, Tensor) or not logits.is_floating_point():
        got = logits.dtype if isinstance(logits, Tensor) else type(logits).__name__
        raise InputTypeError(
            f"`{call}(step=...)` must return logits in a floating-point tensor; got {got}. "
            "Return the model's output before softmax or arg max."
        )
    refuse_meta(call, "step", logits)
    if logits.dim() != 2 or (rows is not None and logits.shape[0] != rows):
        shape = f"({rows if rows is not None else 'batch'}, vocabulary)"
        rule = f"must return logits of shape {shape} for the tokens it is given"
        advice = (
            "One row for each token; the first call gets None and answers for each row of the batch."
        )
        raise fail(call, "step", rule, f"shape {tuple(logits.shape)}", advice)


def bad_processor(call: str, x: object, shape: torch.Size) -> InputError:
    """The sentence for a processor that returns something else than logits."""
    got = f"shape {tuple(x.shape)}" if isinstance(x, Tensor) else type(x).__name__
    return fail(call, "processors", f"must return logits of shape {tuple(shape)}", got, "")


def check_logits(call: str, logits: Tensor, tokens: Tensor, open_nodes: Tensor) -> None:
    """No NaN, no +inf, and at least one token, at each open node `(batch, m)`."""
    wrong = torch.isnan(logits) | (logits == math.inf)
    if bool((bad := wrong.any(-1) & open_nodes).any()):
        row, node = (int(i) for i in bad.nonzero()[0])
        token = int(wrong[row, node].nonzero()[0])
        raise InputError(
            f"`{call}(step=...)` must not return NaN or +inf; got {logits[row, node, token].item()} for token "
            f"{token} at step {tokens.shape[-1]}, row {row}{_after(tokens[row, node])}. -inf is allowed and "
            "means probability 0; look for an overflow in the model, or for half precision."
        )
    if bool((empty := (logits.amax(-1) == -math.inf) & open_nodes).any()):
        row, node = (int(i) for i in empty.nonzero()[0])
        raise InputError(
            f"`{call}`: mask, processors or logits of -inf forbid every token at step {tokens.shape[-1]}, row "
            f"{row}{_after(tokens[row, node])}, so that this sequence can neither go on nor end. Allow the end "
            "of sequence there, or forbid the way to it."
        )


def _after(tokens: Tensor) -> str:
    if tokens.numel() == 0:
        return ""
    shown = ", ".join(str(int(t)) for t in tokens[-8:])
    return f" (after {'..., ' if tokens.numel() > 8 else ''}{shown})"
