r"""What is minimised: SimCSE's loss of an encoder, plus the price of keeping tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from argrad._checks import fail
from argrad._types import Generator
from argrad.integrations.sentences.budget import Budget
from argrad.integrations.sentences.data import Example
from argrad.integrations.sentences.encoder import GatedEncoder
from argrad.integrations.sentences.gradient_cache import cached_backward
from argrad.integrations.sentences.losses import alignment, simcse_loss, uniformity


class SimCSE(nn.Module):
    r"""SimCSE's loss of a gated encoder, $L + \mathrm{budget}(\overline{p})$.

    Examples of one sentence are encoded twice, with two dropout masks (unsupervised); those of three are an anchor, its
    partner and its hard negative. Encoder, temperature of the gate and multiplier of the budget are its state.

    Args:
        encoder: what is trained.
        budget: what keeping tokens costs; None for nothing.
        tau: temperature of the cosines.
        hard_negative_weight: added to the logit of an anchor's own hard negative.
        chunk: sentences that are encoded at a time in `backward`, whatever the batch; 0 for all at once.
        max_length: tokens of a sentence in training, at most; None for what the encoder takes.

    Examples:
        >>> import torch
        >>> from argrad.integrations.sentences import Budget, GatedEncoder
        >>> examples = [("a man eats bread",), ("a dog sleeps",), ("two cars stop",)]
        >>> objective = SimCSE(GatedEncoder.tiny([s for (s,) in examples], gate={}), Budget(0.6))
        >>> loss = objective.backward(objective.collate(examples))
        >>> sorted(objective.metrics)
        ['alignment', 'contrastive', 'kept', 'tau', 'uniformity']

    References: [gao2021].
    """

    def __init__(
        self,
        encoder: GatedEncoder,
        budget: Budget | None = None,
        *,
        tau: float = 0.05,
        hard_negative_weight: float = 0.0,
        chunk: int = 0,
        max_length: int | None = None,
    ) -> None:
        super().__init__()
        if budget is not None and encoder.gate is None:
            advice = "Without a gate nothing can be dropped: give the encoder one."
            raise fail("SimCSE", "budget", "needs an encoder with a gate", "none", advice)
        if chunk and encoder.gate is not None and not encoder.gate.is_path:
            advice = "Give 0, or a gate whose samples carry a gradient (`Relaxed`, `GumbelST`, ...)."
            raise fail("SimCSE", "chunk", "must be 0 for score-function estimators", chunk, advice)
        self.encoder, self.budget = encoder, budget
        self.tau, self.hard_negative_weight, self.chunk = tau, hard_negative_weight, chunk
        self.max_length = max_length
        self.metrics: dict[str, Tensor] = {}  # of the newest batch

    def collate(self, examples: Sequence[Example]) -> dict[str, Any]:
        """Token ids: all anchors, then all partners, then all hard negatives; long sentences are cut."""
        sides = len(examples[0])
        if any(len(example) != sides for example in examples):
            raise fail(
                "SimCSE", "examples", "must all have as many sentences", "both kinds", "Sort them out."
            )
        texts = [example[i] for i in range(sides) for example in examples]
        tokens = self.encoder.tokenize(texts, max_length=self.max_length, truncate=True)
        return {**tokens, "sides": sides}

    def forward(self, inputs: Mapping[str, Any], *, generator: Generator = None) -> Tensor:
        """The loss of a batch from `collate`, with gradient, for every estimator of the gate."""
        tensors, sides = _parted(inputs)
        views = max(1, 2 // sides)
        cost, found = self.encoder.expected_loss(
            tensors, lambda e: self._contrast([e], sides), views=views, generator=generator
        )
        return self._priced(cost, found.kept)

    def backward(
        self, inputs: Mapping[str, Any], *, generator: torch.Generator | None = None, scale: float = 1.0
    ) -> Tensor:
        """Add the gradient of a batch, exactly that of the whole, holding `chunk` sentences; returns the loss."""
        tensors, sides = _parted(inputs)
        rows = len(tensors["input_ids"]) // sides
        size = max(1, self.chunk // max(sides, 2)) if self.chunk else rows
        if size < rows:
            # the rows of a chunk, in every side
            places = [
                torch.cat([p + side * rows for side in range(sides)])
                for p in torch.arange(rows).split(size)
            ]
            return self._backward(tensors, places, sides, generator, scale)
        total = self(inputs, generator=generator)
        (total * scale).backward()
        return total.detach()

    def _backward(
        self,
        tensors: dict[str, Tensor],
        places: Sequence[Tensor],
        sides: int,
        generator: torch.Generator | None,
        scale: float,
    ) -> Tensor:
        """By gradient cache; the price of kept tokens needs their number over all chunks as well."""

        def encode(place: Tensor) -> tuple[Tensor, ...]:
            part = {name: x[place.to(x.device)] for name, x in tensors.items()}
            found = self.encoder(**part, views=max(1, 2 // sides), generator=generator)
            if found.keep_prob is None:
                return (found.embedding,)
            return found.embedding, found.keep_prob.sum(), found.mask.sum().float()

        def loss(outputs: Sequence[tuple[Tensor, ...]]) -> Tensor:
            cost = self._contrast([out[0] for out in outputs], sides)
            if len(outputs[0]) == 1:
                return self._priced(cost, None)
            kept, tokens = (torch.stack([out[i] for out in outputs]).sum() for i in (1, 2))
            return self._priced(cost, kept / tokens)

        own = () if generator is None else (generator,)
        return cached_backward(encode, places, loss, generators=own, scale=scale)

    def _contrast(self, embeddings: Sequence[Tensor], sides: int) -> Tensor:
        """The contrastive loss; every tensor holds its anchors, then their partners, then the hard negatives."""
        split = [e.chunk(max(sides, 2)) for e in embeddings]
        parts = [torch.cat(side) for side in zip(*split, strict=True)]
        loss = simcse_loss(*parts, tau=self.tau, hard_negative_weight=self.hard_negative_weight)
        with torch.no_grad():
            self.metrics = {
                "contrastive": loss.detach(),
                "alignment": alignment(*parts[:2]),
                "uniformity": uniformity(parts[0]),
            }
        return loss

    def _priced(self, cost: Tensor, kept: Tensor | None) -> Tensor:
        gate = self.encoder.gate
        if gate is None or kept is None:
            return cost
        self.metrics |= {"kept": kept.detach(), "tau": torch.as_tensor(gate.tau).detach().float()}
        return cost if self.budget is None else cost + self.budget(kept)


def _parted(inputs: Mapping[str, Any]) -> tuple[dict[str, Tensor], int]:
    return {name: x for name, x in inputs.items() if name != "sides"}, int(inputs["sides"])
