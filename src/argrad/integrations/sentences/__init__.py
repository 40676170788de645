r"""Sentence embeddings with a learned gate on the tokens (`pip install "argrad[hf]"`).

    encoder = GatedEncoder.build("bert-base-uncased", gate={"keep_bias": 2.0}, mode="logit")
    loss, encoded = encoder.expected_loss(encoder.tokenize(texts), simcse, views=2)
    (loss + Budget(0.6)(encoded.kept)).backward()
    print(encoder.explain(texts).ansi())

A small proxy decides, by any estimator of argrad, which tokens the encoder may attend to.
"""

from typing import TYPE_CHECKING, Any

from argrad._errors import ArgradError
from argrad.integrations.sentences.attention import GatedAttention, apply_token_gate
from argrad.integrations.sentences.budget import Budget
from argrad.integrations.sentences.encoder import Counted, Encoded, GatedEncoder
from argrad.integrations.sentences.explain import Explanation, Explanations, explain
from argrad.integrations.sentences.gate import DOCUMENT_SCHEDULE, TokenGate, hard_keep
from argrad.integrations.sentences.pooling import POOLINGS, Pooling
from argrad.integrations.sentences.rules import RandomDrop, StopWords

if TYPE_CHECKING:
    from argrad.integrations.sentences.st_module import GatedTransformer

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
    "Pooling",
    "RandomDrop",
    "StopWords",
    "TokenGate",
    "apply_token_gate",
    "explain",
    "hard_keep",
]


def __getattr__(name: str) -> Any:
    """`GatedTransformer`, which needs one more package than the rest."""
    if name != "GatedTransformer":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from argrad.integrations.sentences.st_module import GatedTransformer
    except ModuleNotFoundError as error:
        raise ArgradError(
            f"`GatedTransformer` needs {error.name}: `pip install sentence-transformers`."
        ) from error
    return GatedTransformer
