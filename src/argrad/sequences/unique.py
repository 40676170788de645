r"""Samples without replacement, some now and more later."""

from __future__ import annotations

import math
from typing import Any, Unpack

import torch
from torch import Tensor

from argrad._checks import check_count
from argrad._errors import InputError
from argrad._types import Generator
from argrad.conditional_gumbel import shift_maximum
from argrad.sequences import _refusals as refuse
from argrad.sequences.beam import Beam, Children, root_beam, search
from argrad.sequences.decoder import Eos, Options, Step, make_decoder
from argrad.sequences.expand import race
from argrad.sequences.nodes import draw_key, gumbel_at, root_nodes
from argrad.sequences.sample import SequenceSample
from argrad.sequences.search import as_sample
from argrad.sequences.trie import Trie


class UniqueSampler:
    r"""Draw sequences without replacement, as many as are needed, a few at a time.

    The sequences already drawn are kept in a trie. Each `draw` is a stochastic beam search over what
    is left: its root starts from the $\kappa$ of the draw before, which *is* the largest perturbed
    log-probability among the sequences left, and each child's mass is what is left below it. So
    `draw(3)` and then `draw(5)` have exactly the law of one draw of 8, perturbed values included, and
    `sample` is a valid `SequenceSample` at any time.

    Args:
        step: `(tokens, state) -> (logits, state)`, as in `stochastic_beam_search`; called anew by each draw,
            with the first `state`, which it must not change in place.
        state: whatever `step` needs.
        eos: the token (or tokens) that ends a sequence; None if only `max_len` does.
        max_len: the largest number of tokens.
        generator: `torch.Generator`, `CounterRNG`, or None for torch's global generator; used once, here.
        options: see `sequences.decoder.Options`.

    Examples:
        >>> import torch, argrad as ag
        >>> def step(token, state):
        ...     return torch.zeros(1 if token is None else len(token), 2), None
        >>> sampler = ag.UniqueSampler(step, None, eos=None, max_len=3)  # 8 sequences
        >>> first, second = sampler.draw(3), sampler.draw(10)
        >>> second.valid.sum().item(), sampler.exhausted
        (5, tensor([True]))
        >>> sampler.sample.tokens.shape  # all of them, each once
        torch.Size([1, 13, 3])

    References: [shi2020], [kool2019].
    """

    def __init__(
        self,
        step: Step,
        state: Any,
        *,
        eos: Eos,
        max_len: int,
        generator: Generator = None,
        **options: Unpack[Options],
    ) -> None:
        self._decoder = make_decoder("UniqueSampler.draw", step, state, eos, max_len, **options)
        self._key = draw_key("UniqueSampler", generator)
        self._drawn: list[SequenceSample] = []
        self._tries: list[Trie] = []

    @torch.no_grad()
    def draw(self, k: int) -> SequenceSample:
        """k further sequences a row; where fewer are left, `valid` says so."""
        k = check_count("UniqueSampler.draw", "k", k, 1, None, "It is the number of sequences a row.")
        front = self._decoder.start()
        node = root_nodes(self._key, self._decoder.row_numbers(front), tree=len(self._drawn))
        if self._drawn:
            top = self._drawn[-1].kappa[:, None]
        else:
            self._tries = [Trie() for _ in range(len(node))]
            top = gumbel_at(self._key, node, torch.full_like(node, -1))
        left = [trie.log_left for trie in self._tries]
        mass = torch.tensor(left, dtype=torch.float64, device=node.device)[:, None]
        beam = search(self._decoder, front, root_beam(node, mass, top), k, self._expand)
        self._remember(beam)
        self._drawn.append(as_sample(self._decoder, beam))
        return self._drawn[-1]

    @property
    def sample(self) -> SequenceSample:
        """Everything drawn so far, in the order of drawing."""
        if not self._drawn:
            raise InputError(
                "`UniqueSampler.sample` is empty: nothing was drawn yet. Call `draw(k)` first."
            )
        return _join(self._drawn, self._decoder.pad)

    @property
    def exhausted(self) -> Tensor:
        """Rows `(batch,)` that have no sequence left."""
        return torch.tensor([t.log_left == -math.inf for t in self._tries], dtype=torch.bool)

    def _expand(self, call: str, beam: Beam, logits: Tensor, count: int) -> Children:
        """`by_gumbel` on what is left below each child."""
        refuse.check_logits(call, logits, beam.tokens, beam.is_open)
        log_p = logits.double().log_softmax(-1)
        left = log_p.clone()
        fanout = (log_p > -math.inf).sum(-1).tolist()
        for b, (trie, paths) in enumerate(zip(self._tries, beam.tokens.tolist(), strict=True)):
            for j, path in enumerate(map(tuple, paths)):
                trie.fanout[path] = fanout[b][j]
                for token, gone in trie.children(path).items():
                    left[b, j, token] = gone.log_p + gone.log_left
        tokens, mass, noisy = race(call, self._key, beam, left, count)
        perturbed = shift_maximum(beam.mass[..., None] + noisy, beam.perturbed[..., None])
        log_prob = beam.log_prob[..., None] + log_p.gather(-1, tokens)
        return Children(tokens, log_prob, beam.mass[..., None] + mass, perturbed)

    def _remember(self, beam: Beam) -> None:
        rows = zip(self._tries, beam.tokens.tolist(), beam.token_log_prob.tolist(), strict=True)
        for b, (trie, paths, log_ps) in enumerate(rows):
            for j in beam.valid[b].nonzero()[:, 0].tolist():
                length = int(beam.length[b, j])
                trie.remove(tuple(paths[j][:length]), log_ps[j][:length])
            trie.fanout.clear()


def _join(parts: list[SequenceSample], pad: int) -> SequenceSample:
    longest = max(p.tokens.shape[-1] for p in parts)
    tokens = [
        torch.nn.functional.pad(p.tokens, (0, longest - p.tokens.shape[-1]), value=pad) for p in parts
    ]
    fields = ("length", "log_prob", "perturbed", "finished", "valid")
    joined = {name: torch.cat([getattr(p, name) for p in parts], 1) for name in fields}
    return SequenceSample(tokens=torch.cat(tokens, 1), kappa=parts[-1].kappa, **joined)
