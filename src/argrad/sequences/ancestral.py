r"""Ordinary sampling of sequences, and the value of what has been written so far."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Unpack

import torch
from torch import Tensor

from argrad._checks import check_count, check_finite, fail
from argrad._types import Float, Generator, Int
from argrad.sequences import _refusals as refuse
from argrad.sequences.codes import Renew, Start, decode, root_start
from argrad.sequences.decoder import Eos, Options, Step, make_decoder
from argrad.sequences.nodes import Key, child_nodes, draw_key, root_nodes, uniform_at
from argrad.sequences.repeated import RepeatedSample


@torch.no_grad()
def ancestral_sample(
    step: Step,
    state: Any,
    n: int,
    *,
    eos: Eos,
    max_len: int,
    generator: Generator = None,
    **options: Unpack[Options],
) -> RepeatedSample:
    r"""Draw n independent sequences, token by token (with replacement).

    $$ s \sim p(s) = \prod_t p(s_t \mid s_{<t}) $$

    Args:
        step: `(tokens, state) -> (logits, state)`, as in `stochastic_beam_search`.
        state: whatever `step` needs.
        n: how many sequences a row.
        eos: the token (or tokens) that ends a sequence; None if only `max_len` does.
        max_len: the largest number of tokens.
        generator: `torch.Generator`, `CounterRNG`, or None for torch's global generator.
        options: see `sequences.decoder.Options`.

    Returns:
        A `RepeatedSample`.

    Examples:
        >>> import torch, argrad as ag
        >>> def step(token, state):
        ...     return torch.zeros(2 if token is None else len(token), 3), None
        >>> ag.ancestral_sample(step, None, 5, eos=0, max_len=4).tokens.shape[:2]
        torch.Size([2, 5])

    See Also: `stochastic_beam_search` (all different), `arithmetic_sample` (spread evenly).
    """
    call = "ancestral_sample"
    decoder = make_decoder(call, step, state, eos, max_len, **options)
    n = check_count(call, "n", n, 1, None, "It is the number of sequences a row.")
    key = draw_key(call, generator)
    front = decoder.start()
    fresh = _fresh_codes(key, decoder.row_numbers(front), n, 0)
    return decode(decoder, front, root_start(front), fresh(None, 0), fresh, independent=True)


@torch.no_grad()
def rollout(
    step: Step,
    state: Any,
    tokens: Int[Tensor, "batch length"],
    reward: Callable[[Tensor, Tensor], Tensor],
    n: int = 16,
    *,
    eos: Eos,
    max_len: int,
    generator: Generator = None,
    **options: Unpack[Options],
) -> Float[Tensor, "batch length"]:
    r"""The value of each beginning of a sequence: the mean reward of n random completions.

    $$ Q_t = \frac{1}{n} \sum_{i=1}^{n} f\big(s_{\le t}, s^{(i)}_{>t}\big), \quad
       s^{(i)}_{>t} \sim p(\cdot \mid s_{\le t}) \tag{1} $$
    With them the score of each token gets the reward of its own consequences:
    $\sum_t Q_t \nabla \log p(s_t \mid s_{<t})$ is an unbiased gradient of $\mathbb{E} f$ (SeqGAN's).
    Costs about $n L^2 / 2$ rows of `step` for each row.

    Args:
        step: `(tokens, state) -> (logits, state)`, as in `stochastic_beam_search`.
        state: whatever `step` needs.
        tokens: one sequence a row, `(batch, length)`, as `ancestral_sample(..., 1).tokens[:, 0]`.
        reward: `(tokens (m, max_len), length (m,)) -> (m,)`.
        n: how many completions of each beginning.
        eos: the token (or tokens) that ends a sequence; None if only `max_len` does.
        max_len: the largest number of tokens.
        generator: `torch.Generator`, `CounterRNG`, or None for torch's global generator.
        options: see `sequences.decoder.Options`.

    Returns:
        $Q_t$ after each token, `(batch, length)`; the last one of a sequence is its own reward, and behind
        the end stands 0.

    Examples:
        >>> import torch, argrad as ag
        >>> def step(token, state):
        ...     return torch.zeros(1 if token is None else len(token), 3), None
        >>> s = torch.tensor([[1, 2, 0]])
        >>> q = ag.rollout(step, None, s, lambda tokens, length: length.double(), eos=0, max_len=8)
        >>> q.shape, q[0, -1].item()  # the length of what begins so; at the end, its own
        (torch.Size([1, 3]), 3.0)

    References: [yu2017].
    """
    call = "rollout"
    decoder = make_decoder(call, step, state, eos, max_len, **options)
    n = check_count(call, "n", n, 1, None, "It is the number of completions.")
    refuse.check_tokens(call, "tokens", tokens, 2)
    if not 1 <= tokens.shape[1] <= max_len:
        rule = f"must have from 1 to `max_len` = {max_len} columns"
        raise fail(call, "tokens", rule, f"shape {tuple(tokens.shape)}", "")
    key = draw_key(call, generator)
    front = decoder.start()
    zero = torch.zeros_like(tokens[:, :1])
    node, values = Start(tokens[:, None, :0], zero, zero.bool()), []
    for time in range(tokens.shape[1]):
        ended = node.finished
        so_far = tokens[:, None, : time + 1]
        node = Start(so_far, node.length + ~ended, ended | decoder.ends(so_far))
        if time + 1 < max_len:
            front = decoder.next(front, zero, so_far)
        fresh = _fresh_codes(key, decoder.row_numbers(front), n, time + 1)
        done = decode(decoder, front, node, fresh(None, time), fresh, independent=True)
        values.append(_mean_reward(call, reward, done, max_len, decoder.pad).where(~ended[:, 0], 0.0))
    return torch.stack(values, -1)


def _fresh_codes(key: Key, rows: Tensor, n: int, tree: int) -> Renew:
    """Codes `(batch, n)` that owe nothing to what was read before."""
    names = child_nodes(root_nodes(key, rows, tree), torch.arange(n, device=rows.device))
    return lambda _, time: uniform_at(key, names, torch.full_like(names, time))


def _mean_reward(
    call: str,
    reward: Callable[[Tensor, Tensor], Tensor],
    sample: RepeatedSample,
    max_len: int,
    pad: int,
) -> Tensor:
    batch, n, length = sample.tokens.shape
    tokens = torch.nn.functional.pad(sample.tokens.flatten(0, 1), (0, max_len - length), value=pad)
    values = reward(tokens, sample.length.flatten())
    if not isinstance(values, Tensor) or values.shape != (batch * n,):
        got = f"shape {tuple(values.shape)}" if isinstance(values, Tensor) else type(values).__name__
        raise fail(call, "reward", f"must return one number a sequence, shape ({batch * n},)", got, "")
    check_finite(call, "reward", values)
    return values.view(batch, n).double().mean(-1)
