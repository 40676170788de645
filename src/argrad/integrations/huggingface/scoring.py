r"""Log-probabilities of given continuations under a transformers model, with a gradient."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from transformers import LogitsProcessorList, PreTrainedModel

from argrad._checks import fail
from argrad.sequences.result import Sequences


def score(
    model: PreTrainedModel,
    prompts: Tensor | Mapping[str, Tensor],
    samples: Sequences,
    *,
    attention_mask: Tensor | None = None,
    tau: float = 1.0,
    logits_processor: LogitsProcessorList | None = None,
    per_token: bool = False,
) -> Tensor:
    r"""Log-probability of each sequence given its prompt, by teacher forcing, in one pass.

    $$ \log p(s \mid x) = \sum_{t \le |s|} \log p(s_t \mid x, s_{<t}) $$

    Args:
        model: the model that was sampled from; `model.eval()`, or dropout changes the probabilities.
        prompts: token ids `(batch, p)` (of the encoder, if there is one), or what a tokenizer returns.
        samples: what `generate(custom_generate=stochastic_beam_search)` returned, or any `Sequences`.
        attention_mask: of the prompts, 0 at (left) padding, if `prompts` does not hold it.
        tau: temperature, as it was for the samples.
        logits_processor: further processors, as they were for the samples.
        per_token: the terms of the sum, 0 behind the end, instead of their sum.

    Returns:
        Shape `(batch, k)`, or `(batch, k, length)` with `per_token`; differentiable.

    Examples:
        >>> import torch
        >>> from transformers import GPT2Config, GPT2LMHeadModel
        >>> from argrad.integrations.huggingface import score, stochastic_beam_search
        >>> config = GPT2Config(vocab_size=9, n_embd=8, n_layer=1, n_head=1, eos_token_id=0, pad_token_id=0)
        >>> model = GPT2LMHeadModel(config).eval()
        >>> prompts = torch.tensor([[1, 2]])
        >>> sample = model.generate(prompts, custom_generate=stochastic_beam_search, num_beams=3,
        ...                         max_new_tokens=5, attention_mask=torch.ones_like(prompts))
        >>> log_prob = score(model, prompts, sample)
        >>> torch.allclose(log_prob.double(), sample.log_prob, atol=1e-5)
        True
        >>> (-sample.surrogate(lambda s: s.length.float(), log_prob)).mean().backward()
    """
    if isinstance(prompts, Mapping):
        attention_mask = prompts.get("attention_mask", attention_mask)
        prompts = prompts["input_ids"]
    batch, k, length = samples.tokens.shape
    if prompts.dim() != 2 or len(prompts) != batch:
        rule = f"must have shape ({batch}, p): a row for each row of the samples"
        raise fail("score", "prompts", rule, f"shape {tuple(prompts.shape)}", "")
    mask = torch.ones_like(prompts) if attention_mask is None else attention_mask
    tokens = samples.tokens.flatten(0, 1).to(prompts.device)  # (batch * k, length)
    forward = _score_encoded if model.config.is_encoder_decoder else _score_decoder
    before, logits = forward(model, prompts, mask, tokens, samples.length.flatten(), k)
    if tau != 1.0:
        logits = logits / tau
    if logits_processor is not None:
        logits = _process(logits_processor, before, tokens, logits)
    log_p = logits.log_softmax(-1).gather(-1, tokens[..., None])[..., 0].view(batch, k, length)
    counts = torch.arange(length, device=log_p.device) < samples.length[..., None].to(log_p.device)
    log_p = torch.where(counts, log_p, 0.0)
    return log_p if per_token else log_p.sum(-1)


def _score_decoder(
    model: Any, prompts: Tensor, mask: Tensor, tokens: Tensor, length: Tensor, k: int
) -> tuple[Tensor, Tensor]:
    """What stands before the tokens, and the logits of each of them, `(rows, length, vocabulary)`."""
    before = prompts.repeat_interleave(k, 0)
    ids = torch.cat([before, tokens], 1)
    known = torch.arange(tokens.shape[1], device=ids.device) < length[:, None].to(ids.device)
    mask = torch.cat([mask.repeat_interleave(k, 0), known.to(mask.dtype)], 1)
    given: dict[str, Any] = {"input_ids": ids, "attention_mask": mask, "use_cache": False}
    takes = inspect.signature(model.forward).parameters
    if "position_ids" in takes:
        given["position_ids"] = (mask.long().cumsum(-1) - 1).clamp(min=0)
    if "logits_to_keep" in takes:
        given["logits_to_keep"] = tokens.shape[1] + 1
    logits = model(**given).logits
    return before, logits[:, -tokens.shape[1] - 1 : -1].float()


def _score_encoded(
    model: Any, prompts: Tensor, mask: Tensor, tokens: Tensor, length: Tensor, k: int
) -> tuple[Tensor, Tensor]:
    """The same where an encoder reads the prompt: once a prompt, not once a sample."""
    encoded = model.get_encoder()(input_ids=prompts, attention_mask=mask, return_dict=True)
    encoded.last_hidden_state = encoded.last_hidden_state.repeat_interleave(k, 0)
    first = model.generation_config.decoder_start_token_id
    before = tokens.new_full((len(tokens), 1), model.config.bos_token_id if first is None else first)
    outputs = model(
        encoder_outputs=encoded,
        attention_mask=mask.repeat_interleave(k, 0),
        decoder_input_ids=torch.cat([before, tokens[:, :-1]], 1),
        use_cache=False,
    )
    return before, outputs.logits.float()


def _process(processors: LogitsProcessorList, before: Tensor, tokens: Tensor, logits: Tensor) -> Tensor:
    """Processors see one step at a time, with the tokens up to it."""
    ids = torch.cat([before, tokens], 1)
    steps: list[Tensor] = [
        processors(ids[:, : before.shape[1] + t], logits[:, t])  # type: ignore[arg-type]
        for t in range(tokens.shape[1])
    ]
    return torch.stack(steps, 1)
