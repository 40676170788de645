r"""A transformers model as a step function, and stochastic beam search inside `generate`."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import GenerationConfig, LogitsProcessorList, PreTrainedModel, StoppingCriteriaList
from transformers.cache_utils import Cache
from transformers.generation.stopping_criteria import EosTokenCriteria, MaxLengthCriteria

from argrad._checks import fail
from argrad._types import Generator
from argrad.sequences._refusals import unsupported
from argrad.sequences.sample import SequenceSample
from argrad.sequences.search import stochastic_beam_search as search


def stochastic_beam_search(
    model: PreTrainedModel,
    input_ids: Tensor,
    logits_processor: LogitsProcessorList,
    stopping_criteria: StoppingCriteriaList,
    generation_config: GenerationConfig,
    generator: Generator = None,
    rows: Tensor | None = None,
    **model_kwargs: Any,
) -> SequenceSample:
    r"""Draw `num_beams` different continuations of each prompt, without replacement.

    Not called directly, but by `generate`, which prepares caches, masks, processors and stopping criteria:

        sample = model.generate(
            **tokenizer(prompts, return_tensors="pt", padding=True, padding_side="left"),
            custom_generate=stochastic_beam_search, num_beams=8, max_new_tokens=32,
        )

    The law is that of the model after all logits processors, renormalised. `generate` only uses `temperature`,
    `top_k`, `top_p` with `do_sample=True`; then `top_k` is 50 unless it is set to 0. The prompt is
    evaluated once a row, not once a beam. A length penalty or early stopping is refused: what they return is not
    a sample. `generate` hands on two further keywords: `generator` (`torch.Generator`, `CounterRNG`, or None)
    and `rows`, the number of each prompt to which its noise belongs, wherever it stands in the batch.

    Returns:
        A `SequenceSample` of shape `(batch, num_beams)`, without the prompt.

    Examples:
        >>> import torch
        >>> from transformers import GPT2Config, GPT2LMHeadModel
        >>> from argrad.integrations.huggingface import stochastic_beam_search
        >>> config = GPT2Config(vocab_size=9, n_embd=8, n_layer=1, n_head=1, eos_token_id=0, pad_token_id=0)
        >>> model = GPT2LMHeadModel(config).eval()
        >>> prompts = torch.tensor([[1, 2], [3, 4]])
        >>> sample = model.generate(prompts, custom_generate=stochastic_beam_search, num_beams=3,
        ...                         max_new_tokens=5, attention_mask=torch.ones_like(prompts))
        >>> sample.tokens.shape, sample.weights().shape
        (torch.Size([2, 3, 5]), torch.Size([2, 3]))

    References: [kool2019].
    """
    k = generation_config.num_beams
    _check_config(generation_config, k)
    once = torch.arange(0, len(input_ids), k, device=input_ids.device)  # the first beam of each row
    kwargs = _select(model, model_kwargs, once, len(input_ids))
    step = _step(model, generation_config, input_ids, logits_processor, kwargs, k)
    return search(
        step,
        None,
        k,
        generator=generator,
        rows=rows,
        reorder=lambda state, index: _reorder(model, state, index),
        **_limits(input_ids[::k], generation_config, stopping_criteria),
    )


def decoder(model: PreTrainedModel, inputs: Tensor | None = None, **options: Any) -> dict[str, Any]:
    r"""A model with its prompts, as the arguments that every search and sampler of argrad takes.

    Args:
        model: any model that can `generate`.
        inputs: prompts, as for `generate`.
        options: anything else that `generate` takes: `attention_mask`, `max_new_tokens`, `temperature` ...

    Returns:
        Keyword arguments `step`, `state`, `batch_size`, `eos`, `max_len`, `pad`, `stop`, `reorder`.

    Examples:
        >>> import torch, argrad as ag
        >>> from transformers import GPT2Config, GPT2LMHeadModel
        >>> from argrad.integrations.huggingface import decoder
        >>> config = GPT2Config(vocab_size=9, n_embd=8, n_layer=1, n_head=1, eos_token_id=0, pad_token_id=0)
        >>> model = GPT2LMHeadModel(config).eval()
        >>> arguments = decoder(model, torch.tensor([[1, 2]]), max_new_tokens=5)
        >>> sampler = ag.UniqueSampler(**arguments)
        >>> sampler.draw(3).tokens.shape[:2], sampler.draw(4).tokens.shape[:2]
        (torch.Size([1, 3]), torch.Size([1, 4]))
    """

    def prepare(
        model: PreTrainedModel,
        input_ids: Tensor,
        logits_processor: LogitsProcessorList,
        stopping_criteria: StoppingCriteriaList,
        generation_config: GenerationConfig,
        **kwargs: Any,
    ) -> dict[str, Any]:
        step = _step(model, generation_config, input_ids, logits_processor, kwargs, 1)
        return {
            "step": torch.no_grad()(step),
            "state": None,
            "batch_size": len(input_ids),
            "reorder": lambda state, index: _reorder(model, state, index, in_place=False),
            **_limits(input_ids, generation_config, stopping_criteria),
        }

    return model.generate(inputs, custom_generate=prepare, **options)  # type: ignore[call-overload]


class _State(NamedTuple):
    """Tokens `(rows, prompt + t)` and what else the model is called with, its cache included."""

    tokens: Tensor
    kwargs: dict[str, Any]


def _step(
    model: Any,
    config: GenerationConfig,
    prompts: Tensor,
    processors: LogitsProcessorList,
    kwargs: dict[str, Any],
    k: int,
) -> Callable[[Tensor | None, Any], tuple[Tensor, _State]]:
    """`kwargs` are those of one row a prompt, `prompts` and what processors expect of k rows."""

    def step(tokens: Tensor | None, state: _State | None) -> tuple[Tensor, _State]:
        if tokens is None or state is None:
            now, given = prompts[::k], {n: _fresh(v) for n, v in kwargs.items()}
            outputs = model._prefill(now, config, given, is_first_iteration=True)
        else:
            now, given = torch.cat([state.tokens, tokens[:, None]], 1), state.kwargs
            new = 1 if given.get("use_cache") else None
            inputs = model.prepare_inputs_for_generation(now, next_sequence_length=new, **given)
            outputs = model(**inputs, return_dict=True)
        encoded = model.config.is_encoder_decoder
        given = model._update_model_kwargs_for_generation(outputs, given, is_encoder_decoder=encoded)
        logits = outputs.logits[:, -1].to(torch.float32, copy=True)
        if state is not None:
            return processors(now, logits), _State(now, given)  # type: ignore[arg-type]
        logits = processors(prompts, logits.repeat_interleave(k, 0))[::k]  # type: ignore[arg-type]
        return logits, _State(now, given)

    return step


def _fresh(value: Any) -> Any:
    """A cache of its own for each search; everything else is read only."""
    return copy.deepcopy(value) if isinstance(value, Cache) else value


def _reorder(model: Any, state: _State, index: Tensor, *, in_place: bool = True) -> _State:
    kwargs = state.kwargs
    if not in_place:
        kwargs = {name: _fresh(value) for name, value in kwargs.items()}
    return _State(state.tokens[index], _select(model, kwargs, index, len(state.tokens)))


def _select(model: Any, kwargs: Mapping[str, Any], index: Tensor, rows: int) -> dict[str, Any]:
    """The arguments of rows `index`; caches change in place."""
    return {name: _select_one(model, value, index, rows) for name, value in kwargs.items()}


def _select_one(model: Any, value: Any, index: Tensor, rows: int) -> Any:
    if isinstance(value, Tensor):
        batch_dim = (
            1 if value.dim() == 3 and value.shape[0] != rows else 0
        )  # positions of several kinds
        fits = value.dim() > batch_dim and value.shape[batch_dim] == rows
        return value.index_select(batch_dim, index.to(value.device)) if fits else value
    if isinstance(value, Mapping):  # the outputs of an encoder
        return type(value)(**_select(model, value, index, rows))
    if hasattr(model, "_reorder_cache") and isinstance(value, (tuple, list)):
        return model._reorder_cache(value, index)
    if isinstance(value, Cache):
        value.reorder_cache(index)  # type: ignore[arg-type]
    return value


def _limits(
    prompts: Tensor, config: GenerationConfig, criteria: StoppingCriteriaList
) -> dict[str, Any]:
    """When sequences end: by token, by length, or by whatever other criterion was asked for."""
    eos, pad = getattr(config, "_eos_token_tensor", None), getattr(config, "_pad_token_tensor", None)
    others = [c for c in criteria if not isinstance(c, (EosTokenCriteria, MaxLengthCriteria))]

    def stop(tokens: Tensor) -> Tensor:
        start = prompts.repeat_interleave(len(tokens) // len(prompts), 0)
        return StoppingCriteriaList(others)(torch.cat([start, tokens], 1), None)  # type: ignore[arg-type]

    return {
        "eos": None if eos is None else [int(token) for token in eos.reshape(-1)],
        "max_len": config.max_length - prompts.shape[1],
        "pad": None if pad is None else int(pad),
        "stop": stop if others else None,
    }


def _check_config(config: GenerationConfig, k: int) -> None:
    call = "generate"
    if config.length_penalty not in (None, 0.0, 1.0):  # 1 is what `generate` fills in
        raise unsupported(call, "length_penalty", config.length_penalty)
    if config.early_stopping not in (None, False, "never"):
        raise unsupported(call, "early_stopping", config.early_stopping)
    if config.num_return_sequences not in (None, 1, k):
        rule = f"must be `num_beams` = {k}, or not set"
        advice = "All beams are returned: they are the sample."
        raise fail(call, "num_return_sequences", rule, config.num_return_sequences, advice)
