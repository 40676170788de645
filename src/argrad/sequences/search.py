r"""Beam search, and its stochastic form: k different sequences, drawn without replacement."""

from __future__ import annotations

import math
from typing import Any, Unpack

import torch
from torch import Tensor

from argrad._checks import check_count
from argrad._types import Generator
from argrad.sequences.beam import Beam, root_beam, search
from argrad.sequences.decoder import Decoder, Eos, Options, Step, make_decoder
from argrad.sequences.expand import by_gumbel, by_log_prob
from argrad.sequences.nodes import draw_key, gumbel_at, root_nodes
from argrad.sequences.result import Sequences
from argrad.sequences.sample import SequenceSample


@torch.no_grad()
def stochastic_beam_search(
    step: Step,
    state: Any,
    k: int,
    *,
    eos: Eos,
    max_len: int,
    generator: Generator = None,
    **options: Unpack[Options],
) -> SequenceSample:
    r"""Draw k different sequences of an autoregressive model, without replacement.

    Every sequence $s$ of the tree gets $G_s = \log p_s + \varepsilon_s$, $\varepsilon_s \sim \mathrm{Gumbel}(0, 1)$,
    and the k largest are the sample (Gumbel-top-k), though only k nodes a level are ever looked at: the
    largest $G$ below a node of log-probability $\phi$ is Gumbel with location $\phi$, so it can be drawn before
    what is below; a child's is drawn given that the largest among its siblings is the parent's. The result has
    exactly the law of drawing sequences one after the other and setting each aside:
    $$ P(s_1, \dots, s_k) = \prod_{j=1}^{k} \frac{p_{s_j}}{1 - \sum_{l<j} p_{s_l}} $$
    The same number of model evaluations as `beam_search`. k = 1 is ordinary sampling; k as large as the
    number of sequences gives all of them; as `tau` tends to 0 it becomes beam search.

    With the same seed the same row gets the same sequences, whatever stands beside it in the batch: the noise
    belongs to (seed, number of the row, tokens). Rows 100 to 107 alone: `generator=rng.shift(rows=100)`.

    Args:
        step: `(tokens, state) -> (logits, state)`. The first call gets None for `tokens` and answers for each
            row of the batch, logits `(batch, vocabulary)`; the following ones get one token for each of
            `batch * k` rows. Runs without gradient.
        state: whatever `step` needs, tensors with the rows first, in any nesting.
        k: how many sequences a row.
        eos: the token (or tokens) that ends a sequence; None if only `max_len` does.
        max_len: the largest number of tokens; a sequence that is cut there is a leaf like any other.
        generator: `torch.Generator`, `CounterRNG`, or None for torch's global generator.
        options: see `sequences.decoder.Options`: `batch_size`, `min_len`, `tau`, `mask`, `processors`,
            `stop`, `prefix`, `rows`, `pad`, `reorder`.

    Returns:
        A `SequenceSample`: tokens, length, log_prob, perturbed, kappa, finished, valid; with weights,
        expectations and a gradient surrogate.

    Examples:
        >>> import torch, argrad as ag
        >>> table = torch.arange(12.0).view(4, 3)
        >>> def step(token, state):  # a bigram model: the state is the last token
        ...     state = state if token is None else token
        ...     return table[state], state
        >>> start = torch.tensor([3, 3])  # two rows
        >>> sample = ag.stochastic_beam_search(step, start, 4, eos=0, max_len=6, generator=ag.CounterRNG(0))
        >>> sample.tokens.shape
        torch.Size([2, 4, 6])
        >>> len({tuple(s) for s in sample.tokens[0].tolist()})  # all different
        4
        >>> bool((sample.perturbed[:, -1] > sample.kappa).all())
        True

    References: [kool2019], [vieira2014].
    """
    call = "stochastic_beam_search"
    decoder = make_decoder(call, step, state, eos, max_len, **options)
    k = check_count(call, "k", k, 1, None, "It is the number of sequences a row.")
    key = draw_key(call, generator)
    front = decoder.start()
    node = root_nodes(key, decoder.row_numbers(front))
    # the largest of all perturbed log-probabilities, drawn: with 0 in its place every kappa would be off
    top = gumbel_at(key, node, torch.full_like(node, -1))
    beam = search(decoder, front, root_beam(node, torch.zeros_like(top), top), k, by_gumbel(key))
    return as_sample(decoder, beam)


@torch.no_grad()
def beam_search(
    step: Step, state: Any, k: int, *, eos: Eos, max_len: int, **options: Unpack[Options]
) -> Sequences:
    r"""The k most probable sequences that a beam of width k finds.

    Keeps the k most probable nodes of each level. Deterministic; a heuristic (a sequence with an unlikely
    beginning is never found); for samples and estimates use `stochastic_beam_search`, at the same cost.

    Args:
        step: `(tokens, state) -> (logits, state)`, as in `stochastic_beam_search`.
        state: whatever `step` needs.
        k: how many sequences a row.
        eos: the token (or tokens) that ends a sequence; None if only `max_len` does.
        max_len: the largest number of tokens.
        options: see `sequences.decoder.Options`.

    Returns:
        `Sequences`, the most probable first.

    Examples:
        >>> import torch, argrad as ag
        >>> logits = torch.tensor([[0.5, 0.3, 0.2]]).log()
        >>> def step(token, state):
        ...     return logits.expand(1 if token is None else len(token), -1), None
        >>> ag.beam_search(step, None, 2, eos=0, max_len=3).tokens
        tensor([[[0, 0],
                 [1, 0]]])

    References: [kool2019].
    """
    call = "beam_search"
    decoder = make_decoder(call, step, state, eos, max_len, **options)
    k = check_count(call, "k", k, 1, None, "It is the number of sequences a row.")
    front = decoder.start()
    node = torch.zeros(front.logits.shape[0], 1, dtype=torch.int64, device=front.logits.device)
    zero = torch.zeros_like(node, dtype=torch.float64)
    return Sequences(
        **as_fields(decoder, search(decoder, front, root_beam(node, zero, zero), k, by_log_prob))
    )


def as_sample(decoder: Decoder, beam: Beam) -> SequenceSample:
    """What a stochastic search found."""
    return SequenceSample(**as_fields(decoder, beam), perturbed=beam.perturbed, kappa=beam.kappa)


def as_fields(decoder: Decoder, beam: Beam) -> dict[str, Tensor]:
    """The fields of `Sequences`; neutral where there is no sequence."""
    valid = beam.valid
    return {
        "tokens": beam.tokens.where(valid[..., None], decoder.pad),
        "length": beam.length.where(valid, 0),
        "log_prob": beam.log_prob.where(valid, -math.inf),
        "finished": beam.finished & valid,
        "valid": valid,
    }
