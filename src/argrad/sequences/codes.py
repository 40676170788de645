r"""Sequences from codes: a number in (0, 1) picks a token by the inverse distribution function.

Ancestral sampling draws a fresh code for each token; arithmetic sampling reads a whole sequence off one code,
as arithmetic coding would decode it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from argrad._checks import can_read
from argrad._kernels.threads import run_rows
from argrad.sequences import _refusals as refuse
from argrad.sequences.decoder import Decoder, Front
from argrad.sequences.expand import has_kernel
from argrad.sequences.repeated import RepeatedSample


class Read(NamedTuple):
    """What codes `(batch, n)` say: tokens, their log-probabilities, and the rest of each code.

    `rest` is the place inside the token's interval, from 0 to 1, known to within `resolution`.
    """

    tokens: Tensor
    log_p: Tensor
    rest: Tensor
    resolution: Tensor


# (what was read, nothing at first; number of the next token) -> the codes for it
Renew: TypeAlias = Callable[[Any, int], Tensor]


class Start(NamedTuple):
    """The node of each row below which to decode: its tokens `(batch, 1, t)`, its length, whether it ended."""

    tokens: Tensor
    length: Tensor
    finished: Tensor


def root_start(front: Front) -> Start:
    """The root of each row."""
    zero = torch.zeros(front.logits.shape[0], 1, dtype=torch.int64, device=front.logits.device)
    return Start(zero[..., None][..., :0], zero, zero.bool())


def decode(
    decoder: Decoder, front: Front, start: Start, codes: Tensor, renew: Renew, *, independent: bool
) -> RepeatedSample:
    """One sequence below `start` for each code `(batch, n)`."""
    batch, n = codes.shape
    tokens = start.tokens.expand(batch, n, -1)
    length, done = start.length.expand(batch, n), start.finished.expand(batch, n)
    log_prob = torch.zeros_like(codes)
    for time in range(start.tokens.shape[-1], decoder.max_len):
        found = read(decoder.call, front.logits, codes, tokens, done)
        log_prob = log_prob + found.log_p.where(~done, 0.0)
        length = length + ~done
        tokens = torch.cat([tokens, found.tokens.where(~done, decoder.pad)[..., None]], -1)
        done = done | decoder.ends(tokens)
        if time + 1 == decoder.max_len or bool(done.all()):
            break
        codes = renew(found, time + 1)
        # at first all codes of a row are at one node, then each is at its own
        parents = torch.arange(n, device=codes.device).clamp(max=front.logits.shape[1] - 1)
        front = decoder.next(front, parents.expand(batch, n), tokens)
    valid = torch.ones_like(done)
    return RepeatedSample(
        tokens=tokens,
        length=length,
        log_prob=log_prob,
        finished=done,
        valid=valid,
        independent=independent,
    )


def read(call: str, logits: Tensor, codes: Tensor, tokens: Tensor, done: Tensor) -> Read:
    """Read codes `(batch, n)` at one node a row, or at one node each: logits `(batch, 1 or n, vocabulary)`."""
    m = logits.shape[1]
    tokens, is_open = tokens[:, :m], ~done[:, :m]
    if has_kernel(logits):
        found, bad = _read_kernel(logits, codes, is_open)
        if bad:
            refuse.check_logits(call, logits, tokens, is_open)
        return found
    if can_read(logits):
        refuse.check_logits(call, logits, tokens, is_open)
    return _read_torch(logits, codes)


def _read_kernel(logits: Tensor, codes: Tensor, is_open: Tensor) -> tuple[Read, int]:
    from argrad._kernels.beam import read_codes

    flat = logits.flatten(0, 1).contiguous()
    places = codes.reshape(len(flat), codes.shape[1] // logits.shape[1]).contiguous()
    tokens = torch.empty_like(places, dtype=torch.int64)
    log_p, rest, resolution = (torch.empty_like(places) for _ in range(3))
    inputs = (flat, is_open.flatten(), places)
    arrays = (x.numpy() for x in (*inputs, tokens, log_p, rest, resolution))
    status = run_rows(read_codes, len(flat), flat.numel(), *arrays)
    return Read(*(x.view(codes.shape) for x in (tokens, log_p, rest, resolution))), status


def _read_torch(logits: Tensor, codes: Tensor) -> Read:
    x = logits.double()
    mass = torch.exp(x - x.amax(-1, keepdim=True))
    upper = mass.cumsum(-1)
    total = upper[..., -1:].contiguous()
    m = logits.shape[1]  # nodes a row
    target = codes.view(len(codes), m, codes.shape[1] // m) * total
    last = torch.searchsorted(upper, total)  # the last token that has any mass
    tokens = torch.minimum(torch.searchsorted(upper, target, right=True), last)
    width = mass.gather(-1, tokens)
    lower = upper.gather(-1, (tokens - 1).clamp(min=0)).where(tokens > 0, 0.0)
    rest = ((target - lower) / width).clamp(0.0, 1.0)
    resolution = (2.0**-52 * total / width).clamp(max=1.0)
    log_p = torch.log(width / total)
    return Read(*(x.reshape(codes.shape) for x in (tokens, log_p, rest, resolution)))
