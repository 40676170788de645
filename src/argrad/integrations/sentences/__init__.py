r"""Sentence embeddings with a learned gate on the tokens (`pip install "argrad[hf]"`).

    encoder = GatedEncoder.build("bert-base-uncased", gate={"keep_bias": 2.0}, mode="logit")
    loss, encoded = encoder.expected_loss(encoder.tokenize(texts), simcse, views=2)
    (loss + Budget(0.6)(encoded.kept)).backward()
    print(encoder.explain(texts).ansi())

A small proxy decides, by any estimator of argrad, which tokens the encoder may attend to.
"""

import importlib
from typing import TYPE_CHECKING, Any

from argrad._errors import ArgradError
from argrad.integrations.sentences.attention import GatedAttention, apply_token_gate
from argrad.integrations.sentences.budget import Budget
from argrad.integrations.sentences.encoder import Counted, Encoded, GatedEncoder
from argrad.integrations.sentences.evaluate import Scores, evaluate
from argrad.integrations.sentences.explain import Explanation, Explanations, explain
from argrad.integrations.sentences.gate import DOCUMENT_SCHEDULE, TokenGate, hard_keep
from argrad.integrations.sentences.gradient_cache import cached_backward
from argrad.integrations.sentences.losses import alignment, simcse_loss, uniformity
from argrad.integrations.sentences.objective import SimCSE
from argrad.integrations.sentences.pooling import POOLINGS, Pooling
from argrad.integrations.sentences.rules import RandomDrop, StopWords
from argrad.integrations.sentences.sts import Pairs, load_sts

if TYPE_CHECKING:
    from argrad.integrations.sentences.st_module import GatedTransformer
    from argrad.integrations.sentences.trainer import SimCSETrainer

__all__ = [
    "DOCUMENT_SCHEDULE",
    "POOLINGS",
    "Budget",
    "Counted",
    "Encoded",
    "Explanation",
    "Explanations",
    "GatedAttention",
    "GatedEncoder",
    "GatedTransformer",
    "Pairs",
    "Pooling",
    "RandomDrop",
    "Scores",
    "SimCSE",
    "SimCSETrainer",
    "StopWords",
    "TokenGate",
    "alignment",
    "apply_token_gate",
    "cached_backward",
    "evaluate",
    "explain",
    "hard_keep",
    "load_sts",
    "simcse_loss",
    "uniformity",
]


_LATER = {
    "GatedTransformer": ("st_module", "sentence-transformers"),
    "SimCSETrainer": ("trainer", "accelerate"),
}  # name -> module that needs one more package than the rest, and that package


def __getattr__(name: str) -> Any:
    """What needs more packages than the rest, imported when it is first used."""
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, package = _LATER[name]
    try:
        return getattr(importlib.import_module(f"{__name__}.{module}"), name)
    except ModuleNotFoundError as error:
        raise ArgradError(f"`{name}` needs {error.name}: `pip install {package}`.") from error
