r"""Samples without replacement from Hugging Face models (`pip install "argrad[hf]"`).

    sample = model.generate(**prompts, custom_generate=stochastic_beam_search, num_beams=8)
    log_prob = score(model, prompts, sample)                        # the same numbers, with a gradient
    loss = -sample.surrogate(reward, log_prob).mean()

Decoder-only, encoder-decoder and recurrent models; dynamic and static caches; batches with left padding.
`decoder` turns a model into what `arithmetic_sample`, `UniqueSampler` and the others take.
"""

from argrad.integrations.huggingface.generate import decoder, stochastic_beam_search
from argrad.integrations.huggingface.processor import StochasticBeamProcessor
from argrad.integrations.huggingface.scoring import score

__all__ = ["StochasticBeamProcessor", "decoder", "score", "stochastic_beam_search"]
