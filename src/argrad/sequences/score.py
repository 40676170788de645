r"""Log-probabilities of given sequences, with a gradient."""

from __future__ import annotations

from typing import Any, Unpack

import torch
from torch import Tensor

from argrad._checks import fail
from argrad._types import Float, Int
from argrad.sequences import _refusals as refuse
from argrad.sequences.decoder import Eos, Options, Step, make_decoder


def sequence_log_prob(
    step: Step,
    state: Any,
    tokens: Int[Tensor, "batch k length"],
    length: Int[Tensor, "batch k"],
    *,
    eos: Eos = None,
    per_token: bool = False,
    **options: Unpack[Options],
) -> Float[Tensor, "batch k ..."]:
    r"""Log-probabilities of sequences under a step function, differentiable in whatever `step` uses.

    $$ \log p(s) = \sum_{t \le |s|} \log p(s_t \mid s_{<t}) $$
    The samplers run without a gradient; this computes the same numbers once more, with one, for
    `SequenceSample.surrogate`. Pass the same options as to the sampler.

    Args:
        step: `(tokens, state) -> (logits, state)`, as in `stochastic_beam_search`.
        state: whatever `step` needs.
        tokens: `(batch, k, length)`, as in a sample.
        length: how many of them count, `(batch, k)`.
        eos: only needed together with `min_len`.
        per_token: the terms of the sum, 0 behind the end, instead of their sum.
        options: see `sequences.decoder.Options`.

    Returns:
        Shape `(batch, k)`, or `(batch, k, length)` with `per_token`.

    Examples:
        >>> import torch, argrad as ag
        >>> table = torch.randn(4, 3, requires_grad=True)
        >>> def step(token, state):
        ...     state = state if token is None else token
        ...     return table[state], state
        >>> start = torch.tensor([3])
        >>> sample = ag.stochastic_beam_search(step, start, 4, eos=0, max_len=6)
        >>> log_prob = ag.sequence_log_prob(step, start, sample.tokens, sample.length)
        >>> torch.allclose(log_prob.double(), sample.log_prob)
        True
        >>> sample.surrogate(lambda s: s.length.float(), log_prob).mean().backward()
        >>> table.grad.shape
        torch.Size([4, 3])
    """
    call = "sequence_log_prob"
    refuse.check_tokens(call, "tokens", tokens, 3)
    if length.shape != tokens.shape[:2]:
        rule = f"must have the tokens' shape without the last dimension, {tuple(tokens.shape[:2])}"
        raise fail(call, "length", rule, f"shape {tuple(length.shape)}", "One number a sequence.")
    refuse.check_tokens(call, "length", length, 2)
    decoder = make_decoder(call, step, state, eos, tokens.shape[-1], **options)
    front, terms = decoder.start(), []
    refuse.check_vocabulary(call, "tokens", tokens, front.logits.shape)
    parents = torch.zeros_like(tokens[..., 0])
    for time in range(tokens.shape[-1]):
        counts = time < length
        width = front.logits.shape[1]  # 1 at the root, which all sequences share
        open_nodes = counts if width > 1 else counts.any(-1, keepdim=True)
        refuse.check_logits(call, front.logits.detach(), tokens[:, :width, :time], open_nodes)
        log_p = front.logits.log_softmax(-1).expand(-1, tokens.shape[1], -1)
        log_p = log_p.gather(-1, tokens[..., time, None])[..., 0]
        terms.append(torch.where(counts, log_p, 0.0))
        if time + 1 == tokens.shape[-1] or not bool((length > time + 1).any()):
            break
        front = decoder.next(front, parents, tokens[..., : time + 1])
        parents = torch.arange(tokens.shape[1], device=tokens.device).expand_as(parents)
    table = torch.stack(terms, -1)
    if not per_token:
        return table.sum(-1)
    return torch.nn.functional.pad(table, (0, tokens.shape[-1] - table.shape[-1]))
