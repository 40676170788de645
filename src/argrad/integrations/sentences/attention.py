r"""A gate on the tokens that a transformer may attend to, without a copied model class.

With attention probabilities $P = \mathrm{softmax}(S)$, values $V$ and a gate $g \in [0, 1]$ a key:

$$ \text{value:}\quad (P\, \mathrm{diag}(g))\, V = P\, (\mathrm{diag}(g) V)
   \qquad\qquad \text{logit:}\quad \mathrm{softmax}(S + \log g)\, V \tag{1} $$

The first needs no attention matrix, only scaled values; its rows sum to less than 1. The second is the
exact relaxation of deleting tokens: at $g \in \{0, 1\}$ nothing else remembers that they were there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from argrad._checks import fail
from argrad._errors import UnsupportedError
from argrad.integrations.sentences._hooks import GateHooks
from argrad.integrations.sentences._interface import base_name, gated_name, watch
from argrad.integrations.sentences.gate import check_choice

Mode = Literal["value", "logit"]
Backend = Literal["auto", "interface", "hook"]
MODES: tuple[Mode, ...] = ("value", "logit")
BACKENDS: tuple[Backend, ...] = ("auto", "interface", "hook")


def apply_token_gate(
    model: PreTrainedModel, mode: Mode = "value", backend: Backend = "auto"
) -> GatedAttention:
    r"""Let a transformers model take a `token_gate`, Eq. (1), in every layer, head and query.

    Checked on one small batch before it is returned: a gate of 1 must change nothing, a gate of 0 must
    change something in every layer (and with `mode="logit"` be what the model's own attention mask is). A
    model on which the gate has no effect is refused.

    Args:
        model: an encoder (`AutoModel`); it is changed in place, and works as before where no gate is given.
        mode: `"value"` multiplies attention probabilities; `"logit"` relaxes deletion.
        backend: `"interface"` is transformers' attention interface, with whatever kernel the model used;
            `"hook"` scales value projections (or adds to the mask of each layer) for models that do not use
            it (MPNet, DeBERTa); `"auto"` is the first of the two that works.

    Returns:
        The model as a function of `token_gate` too, see `GatedAttention`.

    Examples:
        >>> import torch
        >>> from transformers import BertConfig, BertModel
        >>> from argrad.integrations.sentences import apply_token_gate
        >>> config = BertConfig(vocab_size=9, hidden_size=8, num_hidden_layers=1, num_attention_heads=1,
        ...                     intermediate_size=8)
        >>> gated = apply_token_gate(BertModel(config).eval(), mode="logit")
        >>> ids = torch.tensor([[1, 2, 3]])
        >>> out = gated(input_ids=ids, token_gate=torch.tensor([[1.0, 0.5, 0.0]]))
        >>> out.last_hidden_state.shape, gated.backend
        (torch.Size([1, 3, 8]), 'interface')

    References: [gao2021].
    """
    check_choice("apply_token_gate", "mode", mode, MODES)
    check_choice("apply_token_gate", "backend", backend, BACKENDS)
    if not isinstance(model, PreTrainedModel):
        advice = "Load it with `transformers.AutoModel`."
        raise fail(
            "apply_token_gate", "model", "must be a transformers model", type(model).__name__, advice
        )
    reasons = []
    for kind in ("interface", "hook") if backend == "auto" else (backend,):
        gated = GatedAttention(model, mode, kind)
        reason = gated.install()
        if reason is None:
            return gated
        gated.restore()
        reasons.append(f"{kind}: {reason}")
    advice = 'Use `mode="value"`, or another model.' if mode == "logit" else "Use another model."
    raise UnsupportedError(
        f'`apply_token_gate(mode="{mode}")` cannot gate {type(model).__name__} ({"; ".join(reasons)}). {advice}'
    )


class GatedAttention:
    """A model with a gate on its tokens; made by `apply_token_gate`.

    Attributes:
        model: the model, changed in place.
        mode: `"value"` or `"logit"`.
        backend: the one in use, `"interface"` or `"hook"`.
    """

    def __init__(
        self, model: PreTrainedModel, mode: Mode, backend: Literal["interface", "hook"]
    ) -> None:
        self.model, self.mode, self.backend = model, mode, backend
        self._before = self._name = base_name(model)
        self._hooks = GateHooks(mode)

    def __call__(self, *, token_gate: Tensor | None = None, **inputs: Any) -> Any:
        """The model's output; `token_gate` has shape `(batch, length)`, None is the plain model."""
        if token_gate is None:
            return self.model(**inputs)
        if self.backend == "interface":
            if (
                self.model.config._attn_implementation != self._name
            ):  # another gate was put on it meanwhile
                self.model.set_attn_implementation(self._name)
            return self.model(**inputs, token_gate=token_gate)
        with self._hooks.using(token_gate):
            return self.model(**inputs)

    def restore(self) -> None:
        """Undo every change of the model."""
        self._hooks.remove()
        if (
            base_name(self.model) == self._before
            and self.model.config._attn_implementation != self._before
        ):
            self.model.set_attn_implementation(self._before)

    def install(self) -> str | None:
        """Change the model and try it; the reason if it cannot be gated this way."""
        if self.backend == "interface":
            name = gated_name(self._before, self.mode)
            if name is None:
                return f"`{self._before}` takes no additive mask"
            if not self.model._can_set_attn_implementation():
                return "it does not use transformers' attention interface"
            self._name = name
            self.model.set_attn_implementation(name)
        elif not self._hooks.install(self.model):
            return "no projection with the name of a value was found"
        return self._self_check()

    @torch.no_grad()
    def _self_check(self) -> str | None:
        """One batch of two sentences of random tokens; the second is padded."""
        with evaluating(self.model):
            inputs = probe(self.model)
            ones = inputs["attention_mask"].to(next(self.model.parameters()).dtype)
            plain = self(**inputs)[0]
            if not torch.equal(plain, self(**inputs, token_gate=torch.ones_like(ones))[0]):
                return "a gate of 1 changes its output"
            closed = torch.ones_like(ones)
            closed[:, 2] = 0.0
            with watch() as layers:
                gated = self(**inputs, token_gate=closed)[0]
            return self._verdict(inputs, plain, gated, len(layers))

    def _verdict(
        self, inputs: dict[str, Tensor], plain: Tensor, gated: Tensor, layers: int
    ) -> str | None:
        others = inputs["attention_mask"].bool()
        others[:, 2] = False
        if torch.equal(plain[others], gated[others]):
            return "the gate has no effect"
        expected = self.model.config.num_hidden_layers
        reached = layers if self.backend == "interface" else self._hooks.reached
        if reached < expected:
            return f"the gate reaches {reached} of {expected} layers"
        if self.mode == "logit":
            deleted = self(**{**inputs, "attention_mask": others.long()})[0]
            scale = deleted[others].abs().max()
            if not torch.allclose(gated[others], deleted[others], rtol=0, atol=1e-2 * float(scale)):
                return "a gate of 0 is not what its attention mask does"
        return None


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode, each submodule's own mode afterwards."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, training in modes.items():
            module.training = training


def probe(model: PreTrainedModel) -> dict[str, Tensor]:
    """Two rows of six tokens, the last of the second is padding."""
    pad = getattr(model.config, "pad_token_id", None)
    device = next(model.parameters()).device
    choices = [i for i in range(min(model.config.vocab_size, 64)) if i != pad]
    ids = torch.tensor([choices[(7 * i + 3) % len(choices)] for i in range(12)]).view(2, 6)
    mask = torch.ones_like(ids)
    mask[1, 5:] = 0
    if pad is not None:
        ids[1, 5:] = pad
    return {"input_ids": ids.to(device), "attention_mask": mask.to(device)}
