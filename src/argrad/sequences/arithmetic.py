r"""Arithmetic sampling: n sequences that are spread evenly over the model's probability."""

from __future__ import annotations

from typing import Any, Unpack

import torch
from torch import Tensor

from argrad._checks import check_count
from argrad._types import Generator
from argrad.sequences.codes import Read, decode, root_start
from argrad.sequences.decoder import Eos, Options, Step, make_decoder
from argrad.sequences.nodes import child_nodes, draw_key, root_nodes, uniform_at
from argrad.sequences.repeated import RepeatedSample


@torch.no_grad()
def arithmetic_sample(
    step: Step,
    state: Any,
    n: int,
    *,
    eos: Eos,
    max_len: int,
    generator: Generator = None,
    **options: Unpack[Options],
) -> RepeatedSample:
    r"""Draw n sequences with evenly spaced codes: each has the model's law, together they are diverse.

    Sequences in lexicographic order divide the unit interval into pieces of length $p_s$. The codes
    $$ c_i = \big(i / n + u\big) \bmod 1, \quad u \sim \mathrm{Uniform}(0, 1), \quad i = 0, \dots, n - 1 $$
    fall into these pieces, and each is decoded on its own: n rows that never wait for each other. A single
    code is uniform, so every estimate with weights 1/n is unbiased; the codes are spread, so its variance is
    mostly smaller than with independent samples. Two are the same only if some $p_s > 1/n$.

    A code of 53 bits is used up after 53 bits of surprise; the bits that each token consumes are replaced
    by fresh ones, so that sequences of any length keep the right law.

    Args:
        step: `(tokens, state) -> (logits, state)`, as in `stochastic_beam_search`.
        state: whatever `step` needs.
        n: how many sequences a row.
        eos: the token (or tokens) that ends a sequence; None if only `max_len` does.
        max_len: the largest number of tokens.
        generator: `torch.Generator`, `CounterRNG`, or None for torch's global generator.
        options: see `sequences.decoder.Options`.

    Returns:
        A `RepeatedSample`, in the order of the codes.

    Examples:
        >>> import torch, argrad as ag
        >>> def step(token, state):
        ...     return torch.zeros(1 if token is None else len(token), 4), None
        >>> sample = ag.arithmetic_sample(step, None, 8, eos=None, max_len=1)
        >>> torch.bincount(sample.tokens.flatten())  # independent samples would not be so even
        tensor([2, 2, 2, 2])

    References: [vilnis2023].
    """
    call = "arithmetic_sample"
    decoder = make_decoder(call, step, state, eos, max_len, **options)
    n = check_count(call, "n", n, 1, None, "It is the number of sequences a row.")
    key = draw_key(call, generator)
    front = decoder.start()
    root = root_nodes(key, decoder.row_numbers(front))
    number = torch.arange(n, device=root.device)
    names = child_nodes(root, number)  # (batch, n)
    codes = (number / n + uniform_at(key, root, torch.full_like(root, -1))) % 1.0

    def refill(found: Read, time: int) -> Tensor:
        low_bits = uniform_at(key, names, torch.full_like(names, time))
        return (found.rest + found.resolution * low_bits) % 1.0

    return decode(decoder, front, root_start(front), codes, refill, independent=False)
