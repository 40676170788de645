r"""Stochastic beam search inside transformers' own beam search, by its public interface alone."""

from __future__ import annotations

import torch
from torch import Tensor
from transformers import LogitsProcessor

from argrad import random
from argrad._checks import check_count
from argrad._types import Generator
from argrad.conditional_gumbel import gumbel_given_max


class StochasticBeamProcessor(LogitsProcessor):
    r"""A logits processor that turns `generate`'s beam search into a stochastic beam search.

    Beam search adds up whatever scores its processors return; this one returns the differences of
    perturbed log-probabilities, so that the sums are $G_s$. Needs `num_beams = num_return_sequences = k`,
    `do_sample=False`, `length_penalty=0.0`, `early_stopping="never"`, and must be the last processor. It keeps
    track of one call of `generate`: make a new one for each.

    `custom_generate=stochastic_beam_search` is faster, keeps float64 values and returns log-probabilities and
    $\kappa$; use this where a program offers processors only.

    Args:
        k: the number of beams.
        generator: `torch.Generator`, `CounterRNG`, or None for torch's global generator.

    Examples:
        >>> import torch
        >>> from transformers import GPT2Config, GPT2LMHeadModel
        >>> from argrad.integrations.huggingface import StochasticBeamProcessor
        >>> config = GPT2Config(vocab_size=9, n_embd=8, n_layer=1, n_head=1, eos_token_id=0, pad_token_id=0)
        >>> model = GPT2LMHeadModel(config).eval()
        >>> prompts = torch.tensor([[1, 2]])
        >>> out = model.generate(
        ...     prompts, attention_mask=torch.ones_like(prompts), max_new_tokens=5,
        ...     logits_processor=[StochasticBeamProcessor(3)], num_beams=3, num_return_sequences=3,
        ...     do_sample=False, length_penalty=0.0, early_stopping="never")
        >>> len({tuple(s) for s in out.tolist()})
        3

    References: [kool2019].
    """

    def __init__(self, k: int, *, generator: Generator = None) -> None:
        self.k = check_count("StochasticBeamProcessor", "k", k, 1, None, "It is `num_beams`.")
        random.check_generator("StochasticBeamProcessor", generator)
        self.generator = generator
        self._before: tuple[Tensor, Tensor, Tensor] | None = None  # tokens, log-probabilities, values
        self._steps = 0

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:  # type: ignore[override]
        """Scores `(batch * k, vocabulary)` that make the sums of beam search perturbed log-probabilities."""
        log_p = scores.double().log_softmax(-1)
        first, noise = self._sources()
        if self._before is None:
            phi = torch.zeros_like(log_p[:, 0])
            value = random.gumbel((len(phi) // self.k,), dtype=phi.dtype, generator=first)
            value = value.to(phi.device).repeat_interleave(self.k)
            so_far = torch.zeros_like(phi)  # beam search starts from 0
        else:
            phi, value = self._find_parents(input_ids)
            so_far = value
        phi = phi[:, None] + log_p
        values = gumbel_given_max(phi, value, generator=noise)
        self._before = (input_ids.clone(), phi, values)
        return (values - so_far[:, None]).to(scores.dtype)

    def _sources(self) -> tuple[Generator, Generator]:
        """For the root and for this step."""
        self._steps += 1
        if isinstance(self.generator, random.CounterRNG):
            return self.generator.fold(0), self.generator.fold(self._steps)
        return self.generator, self.generator

    def _find_parents(self, input_ids: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probability and value of each beam, by looking for its beginning among the beams before."""
        assert self._before is not None
        tokens, phi, values = self._before
        beams = tokens.view(-1, 1, self.k, tokens.shape[-1])
        now = input_ids[:, :-1].reshape(-1, self.k, 1, tokens.shape[-1])
        parent = (now == beams).all(-1).int().argmax(-1)  # (batch, k)
        row = torch.arange(len(parent), device=parent.device)[:, None] * self.k
        at = ((row + parent).reshape(-1), input_ids[:, -1])
        return phi[at], values[at]
