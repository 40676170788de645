"""Decoding: a stochastic beam search may cost as much as a beam search, and hardly more."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor

import argrad as ag
from benchmarks.line import Line, Speedup, Step, both

BATCH, BEAMS, PROMPT, LENGTH = 4, 8, 8, 32
VOCABULARY = 50_257


@cache
def _model() -> Any:
    """GPT-2's layers, two of them, with random weights; no token ends a sequence, so that all have 32."""
    import transformers

    transformers.logging.set_verbosity_error()
    torch.manual_seed(0)
    config = transformers.GPT2Config(n_layer=2, bos_token_id=0, eos_token_id=None, pad_token_id=0)
    return transformers.GPT2LMHeadModel(config).eval()


def _generate(**options: Any) -> Any:
    g = torch.Generator().manual_seed(1)
    prompts = torch.randint(1, VOCABULARY, (BATCH, PROMPT), generator=g)
    mask = torch.ones_like(prompts)
    return _model().generate(
        prompts, attention_mask=mask, num_beams=BEAMS, max_new_tokens=LENGTH, **options
    )


def _ours() -> Step:
    from argrad.integrations.huggingface import stochastic_beam_search

    _model()
    return lambda: _generate(custom_generate=stochastic_beam_search)


def _peer() -> Step:
    _model()
    return lambda: _generate(do_sample=False, num_return_sequences=BEAMS)


def _check(ours: ag.SequenceSample, peer: Tensor) -> None:
    """Eight different sequences a prompt, of the full length; ours with a race's values."""
    assert ours.tokens.shape == (BATCH, BEAMS, LENGTH)
    assert peer.shape == (BATCH * BEAMS, PROMPT + LENGTH)
    for sequences in (ours.tokens, peer.view(BATCH, BEAMS, -1)):
        for row in sequences:
            assert len(torch.unique(row, dim=0)) == BEAMS
    assert (ours.perturbed.diff() < 0).all()
    assert (ours.perturbed[:, -1] > ours.kappa).all()


LINES = (
    Line(
        name=f"stochastic beam search, GPT-2 of 2 layers, batch {BATCH}, k = {BEAMS}, {LENGTH} tokens",
        ours=_ours,
        peer=_peer,
        peer_name="generate(num_beams=8)",
        package="transformers",
        check=_check,
        goals=both(Speedup(1 / 1.3)),
    ),
)
