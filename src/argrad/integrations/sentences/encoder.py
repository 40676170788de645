r"""Sentences -> vectors: a proxy that gates the tokens, a backbone, pooling, a projection head."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from torch import Tensor, nn
from torch.nn.functional import normalize as unit
from transformers import BatchEncoding, PreTrainedModel, PreTrainedTokenizerBase

from argrad._checks import fail
from argrad._types import Generator
from argrad.integrations.sentences import _files, _models
from argrad.integrations.sentences._inference import Counted, encode_counted, infer
from argrad.integrations.sentences._removal import cannot_remove, removal_refusal
from argrad.integrations.sentences._texts import as_list, pad, token_ids
from argrad.integrations.sentences.attention import Backend, Mode, apply_token_gate
from argrad.integrations.sentences.explain import Explanations, explain
from argrad.integrations.sentences.gate import Scores, TokenGate, check_choice
from argrad.integrations.sentences.pooling import Pooling

HEADS = ("mlp",)


@dataclass(frozen=True)
class Encoded:
    """What `GatedEncoder` returns for a batch.

    Attributes:
        embedding: `(views * batch, d)`: all rows of the first view, then those of the second.
        gate: what was applied, `(views * batch, length)`; None without a gate.
        keep_prob: probability of each token to be kept, `(batch, length)`, 0 at padding; None without a gate.
        mask: True at tokens, `(batch, length)`.
    """

    embedding: Tensor
    gate: Tensor | None
    keep_prob: Tensor | None
    mask: Tensor

    @property
    def kept(self) -> Tensor | None:
        """The expected fraction of tokens that are kept, with gradient: what a `Budget` takes."""
        return None if self.keep_prob is None else self.keep_prob.sum() / self.mask.sum()


class GatedEncoder(nn.Module):
    r"""A sentence encoder whose tokens pass a learned gate.

    $$ z \sim \mathrm{gate}(\mathrm{proxy}(x)), \qquad
       e(x) = \mathrm{head}(\mathrm{pool}(\mathrm{backbone}(x; z), z)) $$
    In training the gate is drawn by its estimator; in evaluation it is 0 or 1 (`hard_keep`).

    Args:
        backbone: a transformers encoder, changed in place (`apply_token_gate`).
        tokenizer: of the backbone, and of the proxy.
        gate: None is the plain encoder.
        mode: `"value"` or `"logit"`, see `apply_token_gate`.
        backend: see `apply_token_gate`.
        pooling: a kind of `Pooling`.
        head: `"mlp"` is dropout, a linear layer and tanh after pooling (dropout in training alone); None is none.
        head_at_test: use the head in evaluation too; SimCSE without labels does not.
        max_length: longest sentence, in tokens; None is what the backbone has positions for.

    Examples:
        >>> from argrad.integrations.sentences import GatedEncoder
        >>> texts = ["a man plays a flute", "the cat sat on the mat"]
        >>> encoder = GatedEncoder.tiny(texts, gate={"keep_bias": 2.0}, mode="logit")
        >>> encoder.encode(texts).shape
        torch.Size([2, 32])
        >>> encoded = encoder(**encoder.tokenize(texts), views=2)
        >>> encoded.embedding.shape, encoded.kept.requires_grad
        (torch.Size([4, 32]), True)

    References: [gao2021], [jang2017].
    """

    def __init__(
        self,
        backbone: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        *,
        gate: TokenGate | None = None,
        mode: Mode = "value",
        backend: Backend = "auto",
        pooling: str = "avg",
        head: str | None = None,
        head_at_test: bool = True,
        max_length: int | None = None,
    ) -> None:
        super().__init__()
        if head is not None:
            check_choice("GatedEncoder", "head", head, HEADS)
        _models.check_vocabulary("backbone", backbone, tokenizer)
        if gate is not None:
            _models.check_gate(gate, tokenizer, pooling)
        size = backbone.config.hidden_size
        self.backbone, self.tokenizer, self.gate = backbone, tokenizer, gate
        self.pool = Pooling(pooling, size)
        self.head = _mlp(backbone.config) if head == "mlp" else None
        self.head_at_test = head_at_test
        self.max_length = _models.check_length(max_length, backbone, tokenizer)
        self.mode: Mode = mode
        self._removal: str | None = None  # why tokens cannot be deleted; "": they can; None: not tried
        self._gated = None if gate is None else apply_token_gate(backbone, mode, backend)

    # ==== making one ==============================================================================

    @classmethod
    def build(
        cls,
        backbone: str | Path | PreTrainedModel,
        *,
        tokenizer: PreTrainedTokenizerBase | None = None,
        layers: int | None = None,
        proxy: str | Path | nn.Module | None = None,
        proxy_layers: int = 1,
        gate: Mapping[str, Any] | TokenGate | None = None,
        **options: Any,
    ) -> Self:
        """An encoder from a model folder or a name on the hub.

        Args:
            backbone: a folder, a name, or a model (then with `tokenizer`).
            tokenizer: None is the one beside the backbone.
            layers: use the first layers only.
            proxy: the model of the gate, with the same tokenizer; None is a copy of the first
                `proxy_layers` layers of the backbone.
            proxy_layers: layers of that proxy.
            gate: options of `TokenGate`, `{}` for its defaults; None is an encoder without gate.
            options: of `GatedEncoder`.
        """
        model, tokens = _models.load("backbone", backbone, tokenizer, layers)
        if gate is not None and not isinstance(gate, TokenGate):
            proxy = _models.load_proxy(proxy, backbone, tokens, model, proxy_layers)
            gate = TokenGate(proxy, **{"special_ids": _models.structural_ids(tokens), **gate})
        return cls(model, tokens, gate=gate, **options)

    @classmethod
    def tiny(
        cls, sentences: Sequence[str] = (), *, gate: Mapping[str, Any] | None = None, **options: Any
    ) -> Self:
        """A BERT of two small layers with random weights, whose words are those of `sentences`.

        For tests and first steps, without a download.
        """
        model, tokens = _models.tiny(sentences)
        return cls.build(model, tokenizer=tokens, gate=gate, **options)

    @classmethod
    def from_pretrained(cls, folder: str | Path) -> Self:
        """What `save_pretrained` wrote."""
        return _files.load(cls, folder)

    def save_pretrained(self, folder: str | Path) -> None:
        """Write weights (safetensors), settings and tokenizer into a folder."""
        _files.save(self, folder)

    # ==== tensors =================================================================================

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        token_type_ids: Tensor | None = None,
        *,
        views: int = 1,
        gate: Tensor | None = None,
        generator: Generator = None,
    ) -> Encoded:
        """Embeddings of a batch of token ids, `views` of each row (they differ by dropout and gates).

        Args:
            input_ids: `(batch, length)`.
            attention_mask: 1 at tokens, 0 at padding.
            token_type_ids: not needed: a row is one sentence.
            views: how often to encode each row.
            gate: use this gate, `(batch or views * batch, length)`, instead of drawing one.
            generator: for drawing it.
        """
        del token_type_ids
        if self.gate is None:
            if gate is not None:
                rule = "must be None for an encoder without a gate"
                raise fail("GatedEncoder", "gate", rule, gate, "Build it with `gate={}`.")
            return self._embed(input_ids, attention_mask, None, None, views)
        scores = self.gate.score(input_ids, attention_mask)
        if gate is None:
            drawn = self._scores_of_views(scores, views)
            gate = (
                self.gate.sample(drawn, generator=generator)
                if self.training
                else self.gate.hard(scores)
            )
        return self._embed(input_ids, attention_mask, gate, scores, views)

    def expected_loss(
        self,
        inputs: Mapping[str, Tensor],
        cost: Callable[[Tensor], Tensor],
        *,
        views: int = 1,
        per_row: bool = False,
        generator: Generator = None,
    ) -> tuple[Tensor, Encoded]:
        r"""$\mathbb{E}_z\, \mathrm{cost}(e(x; z))$, for every estimator (score functions draw several gates).

        Args:
            inputs: `input_ids` and `attention_mask`.
            cost: embeddings `(views * batch, d)` -> the loss, a scalar.
            views: as in `forward`.
            per_row: see `TokenGate.expectation`; `cost` then gives a loss for each row of the gate.
            generator: for drawing gates.

        Returns:
            The loss, and what the last gate gave. A `Budget` is not in it: add `budget(encoded.kept)`.
        """
        ids, mask = inputs["input_ids"], inputs["attention_mask"]
        if self.gate is None or not self.training:
            encoded = self(ids, mask, views=views, generator=generator)
            return cost(encoded.embedding).mean(), encoded
        scores = self.gate.score(ids, mask)
        seen: list[Encoded] = []

        def of_gate(gate: Tensor) -> Tensor:
            seen[:] = [self._embed(ids, mask, gate, scores, views)]
            return cost(seen[0].embedding)

        drawn = self._scores_of_views(scores, views)
        loss = self.gate.expectation(of_gate, drawn, per_row=per_row, generator=generator)
        return loss, seen[0]

    def _scores_of_views(self, scores: Scores, views: int) -> Scores:
        assert self.gate is not None
        return scores.repeat(views) if self.gate.views == "independent" and views > 1 else scores

    def _embed(
        self, ids: Tensor, mask: Tensor, gate: Tensor | None, scores: Scores | None, views: int
    ) -> Encoded:
        prob = None if self.gate is None or scores is None else self.gate.keep_prob(scores)
        rows = mask.repeat(views, 1)
        if gate is not None and len(gate) < len(rows):
            gate = gate.repeat(views, 1)
        embedding = self.vectors(ids.repeat(views, 1), rows, gate)
        return Encoded(embedding, gate, prob, mask.bool())

    def vectors(self, ids: Tensor, mask: Tensor, gate: Tensor | None, **inputs: Tensor) -> Tensor:
        """Backbone, pooling, head; `inputs` are further ones of the backbone."""
        inputs = {"input_ids": ids, "attention_mask": mask, **inputs}
        call: dict[str, Any] = {**inputs, "output_hidden_states": self.pool.needs_layers}
        out = self.backbone(**call) if self._gated is None else self._gated(**call, token_gate=gate)
        layers = out.hidden_states if self.pool.needs_layers else (out.last_hidden_state,)
        weights = mask if gate is None else mask * gate
        vector = self.pool(layers, weights)
        if self.head is None or not (self.training or self.head_at_test):
            return vector
        return self.head(vector)

    # ==== texts ===================================================================================

    def tokenize(
        self, texts: str | Sequence[str], *, max_length: int | None = None, truncate: bool = False
    ) -> BatchEncoding:
        """Token ids of sentences, padded to the longest.

        Args:
            texts: one sentence or several; an empty one is refused.
            max_length: at most so many tokens; None is `self.max_length`.
            truncate: cut longer sentences instead of refusing them.
        """
        limit = self.max_length if max_length is None else min(max_length, self.max_length)
        ids = token_ids(self.tokenizer, as_list(texts), limit, truncate)
        return pad(self.tokenizer, ids).to(next(self.backbone.parameters()).device)

    def encode(self, texts: str | Sequence[str], **options: Any) -> Tensor:
        """Embeddings of sentences, `(n, d)` (or `(d,)` for one string), on the CPU; see `encode_counted`."""
        embedding = self.encode_counted(texts, **options).embedding
        return embedding[0] if isinstance(texts, str) else embedding

    def encode_counted(
        self,
        texts: str | Sequence[str],
        *,
        batch_size: int = 64,
        normalize: bool = False,
        remove: bool | None = None,
        truncate: bool = False,
    ) -> Counted:
        r"""Embeddings of sentences in evaluation mode, and how many tokens were kept.

        Args:
            texts: sentences.
            batch_size: sentences at a time; batches hold sentences of similar length.
            normalize: divide by the Euclidean norm.
            remove: delete the dropped tokens before the backbone sees them, their positions kept. With
                `mode="logit"` that is what the gate means, and the default; with `mode="value"` dropped tokens
                still take attention, so that the embeddings differ.
            truncate: cut sentences that are longer than `max_length` instead of refusing them.
        """
        options = {"size": batch_size, "removes": self._removes(remove), "truncate": truncate}
        found = encode_counted(self, as_list(texts), **options)
        return found._replace(embedding=unit(found.embedding, dim=-1)) if normalize else found

    def infer(self, input_ids: Tensor, attention_mask: Tensor, *, remove: bool | None = None) -> Tensor:
        """Embeddings of a batch of token ids with the gate of inference; `remove` as in `encode_counted`."""
        return infer(self, input_ids, attention_mask, removes=self._removes(remove))

    def _removes(self, remove: bool | None) -> bool:
        """Whether to delete tokens: if asked to, or if the gate means that and the backbone can do it."""
        if self.gate is None or remove is False or (remove is None and self.mode == "value"):
            return False
        if self._removal is None:
            self._removal = removal_refusal(self.backbone, self.max_length) or ""
        if remove and self._removal:
            raise cannot_remove(self.backbone, self._removal)
        return not self._removal

    def explain(self, texts: str | Sequence[str], *, truncate: bool = False) -> Explanations:
        """Each token with its probability of being kept; coloured by `.ansi()` and `.html()`."""
        return explain(self, as_list(texts), truncate=truncate)


def _mlp(config: Any) -> nn.Module:
    dropout = getattr(config, "hidden_dropout_prob", 0.1)
    size = config.hidden_size
    return nn.Sequential(nn.Dropout(dropout), nn.Linear(size, size), nn.Tanh())
