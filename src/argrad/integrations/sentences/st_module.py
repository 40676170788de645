r"""A gated encoder inside sentence-transformers (`pip install sentence-transformers`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from sentence_transformers.base.modules import InputModule
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from argrad._errors import UnsupportedError
from argrad.integrations.sentences._models import check_length
from argrad.integrations.sentences._texts import as_list
from argrad.integrations.sentences.encoder import GatedEncoder


class GatedTransformer(InputModule):
    """A `GatedEncoder` as the first (and only) module of a `SentenceTransformer`; pooling is part of it.

    It encodes, trains (with every estimator whose samples carry a gradient), saves and loads there. Since the
    class is not one of sentence-transformers' own, loading asks for `trust_remote_code=True`; nothing but
    installed code is run.

        model = SentenceTransformer(modules=[GatedTransformer(encoder)])
        model.save_pretrained(folder)
        model = SentenceTransformer(folder, trust_remote_code=True)

    Args:
        encoder: an encoder, or the folder of one.

    Examples:
        >>> from sentence_transformers import SentenceTransformer
        >>> from argrad.integrations.sentences import GatedEncoder
        >>> from argrad.integrations.sentences.st_module import GatedTransformer
        >>> texts = ["a man plays a flute", "a cat sleeps"]
        >>> model = SentenceTransformer(modules=[GatedTransformer(GatedEncoder.tiny(texts, gate={}))], device="cpu")
        >>> model.encode(texts).shape
        (2, 32)
    """

    def __init__(self, encoder: GatedEncoder | str | Path) -> None:
        super().__init__()
        self.encoder = (
            encoder if isinstance(encoder, GatedEncoder) else GatedEncoder.from_pretrained(encoder)
        )

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase:  # type: ignore[override]
        """Of the encoder."""
        return self.encoder.tokenizer

    @property
    def max_seq_length(self) -> int:
        """Longer sentences are cut, as everywhere in sentence-transformers."""
        return self.encoder.max_length

    @max_seq_length.setter
    def max_seq_length(self, value: int) -> None:
        self.encoder.max_length = check_length(value, self.encoder.backbone, self.encoder.tokenizer)

    def get_embedding_dimension(self) -> int:
        """Width of the embeddings."""
        return self.encoder.backbone.config.hidden_size

    def preprocess(
        self, inputs: Sequence[Any], prompt: str | None = None, **_: Any
    ) -> dict[str, Tensor]:
        """Token ids of sentences."""
        texts = [(prompt or "") + text for text in as_list(inputs)]
        return dict(self.encoder.tokenize(texts, truncate=True))

    def forward(self, features: dict[str, Any], **_: Any) -> dict[str, Any]:
        """Add `sentence_embedding`: with a drawn gate in training, the gate of inference otherwise."""
        ids, mask = features["input_ids"], features["attention_mask"]
        if not self.training:
            features["sentence_embedding"] = self.encoder.infer(ids, mask)
            return features
        gate = self.encoder.gate
        if gate is not None and not gate.is_path:
            raise UnsupportedError(
                f"`GatedTransformer` cannot train a gate with {gate.estimator!r} here, where the gradient comes "
                "from one forward pass. Use `Relaxed`, `GumbelST` or `ReinMax`, or train by `expected_loss`."
            )
        encoded = self.encoder(ids, mask)
        return features | {"sentence_embedding": encoded.embedding, "keep_prob": encoded.keep_prob}

    def save(
        self, output_path: str, *args: Any, safe_serialization: bool = True, **kwargs: Any
    ) -> None:
        """The folder of the encoder."""
        self.encoder.save_pretrained(output_path)

    @classmethod
    def load(cls, model_name_or_path: str, subfolder: str = "", *args: Any, **kwargs: Any) -> Self:
        """From a folder, or a name on the hub."""
        names = ("token", "cache_folder", "revision", "local_files_only")
        where = {name: kwargs[name] for name in names if name in kwargs}
        folder = cls.load_dir_path(model_name_or_path, subfolder=subfolder, **where)
        return cls(model_name_or_path if folder is None else folder)
