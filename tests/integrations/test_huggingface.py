"""Stochastic beam search inside `generate`, for every kind of model, against the list of all continuations."""

from __future__ import annotations

import functools
import itertools
import math
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import argrad as ag
from argrad.testing import assert_frequencies, assert_mean
from sequence_oracle import inclusion

transformers = pytest.importorskip("transformers")
hf = ag.integrations.huggingface

VOCABULARY, LENGTH, EOS, K = 5, 4, 4, 3
INNER = range(VOCABULARY - 1)
LEAVES = [(*p, EOS) for n in range(LENGTH) for p in itertools.product(INNER, repeat=n)]
LEAVES += list(itertools.product(INNER, repeat=LENGTH))
TOKENS = torch.tensor([leaf + (EOS,) * (LENGTH - len(leaf)) for leaf in LEAVES])
LENGTHS = torch.tensor([len(leaf) for leaf in LEAVES])
PLACE = {tuple(tokens): i for i, tokens in enumerate(TOKENS.tolist())}
PROMPT = torch.tensor([[0, 1]])
IDS = {"bos_token_id": 0, "eos_token_id": EOS, "pad_token_id": EOS, "vocab_size": VOCABULARY}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    transformers.logging.set_verbosity_error()
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@functools.cache
def make(name: str) -> Any:
    """A small random model, alike in every test."""
    torch.manual_seed(3)
    llama = {
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "num_key_value_heads": 1,
        "initializer_range": 0.4,
    }
    t5 = {
        "d_model": 16,
        "d_kv": 8,
        "d_ff": 32,
        "num_layers": 2,
        "num_heads": 2,
        "initializer_factor": 1.5,
    }
    gpt2 = {"n_positions": 16, "n_embd": 16, "n_layer": 2, "n_head": 2, "initializer_range": 0.2}
    mamba = {"hidden_size": 16, "num_hidden_layers": 2, "state_size": 4, "initializer_range": 0.3}
    model = {
        "gpt2": lambda: transformers.GPT2LMHeadModel(transformers.GPT2Config(**gpt2, **IDS)),
        "llama": lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(**llama, **IDS)),
        "t5": lambda: transformers.T5ForConditionalGeneration(
            transformers.T5Config(decoder_start_token_id=0, **t5, **IDS)
        ),
        "mamba": lambda: transformers.MambaForCausalLM(transformers.MambaConfig(**mamba, **IDS)),
    }[name]()
    return model.eval()


@functools.cache
def exact(name: str) -> Tensor:
    """Log-probability of every continuation of the prompt, without any cache."""
    model, rows = make(name), len(LEAVES)
    with torch.no_grad():
        if name == "t5":
            before = torch.cat([torch.zeros(rows, 1, dtype=torch.int64), TOKENS[:, :-1]], 1)
            logits = model(input_ids=PROMPT.expand(rows, -1), decoder_input_ids=before).logits
        else:
            logits = model(input_ids=torch.cat([PROMPT.expand(rows, -1), TOKENS], 1)).logits[:, 1:-1]
    log_p = logits.double().log_softmax(-1).gather(-1, TOKENS[..., None])[..., 0]
    return log_p.masked_fill(torch.arange(LENGTH) >= LENGTHS[:, None], 0.0).sum(-1)


def draw(name: str, rows: int = 1, seed: int = 0, **options: Any) -> ag.SequenceSample:
    options = {"generator": ag.CounterRNG(seed), "num_beams": K, "max_new_tokens": LENGTH, **options}
    prompt = PROMPT.expand(rows, -1)
    mask = torch.ones_like(prompt)
    return make(name).generate(
        prompt, attention_mask=mask, custom_generate=hf.stochastic_beam_search, **options
    )


def which(tokens: Tensor) -> Tensor:
    padded = torch.nn.functional.pad(tokens, (0, LENGTH - tokens.shape[-1]), value=EOS)
    return torch.tensor([[PLACE[tuple(s)] for s in row] for row in padded.tolist()])


def check_law(places: Tensor, p: Tensor) -> None:
    """First draw and inclusion are those of k draws without replacement."""
    rows, n = len(places), len(p)
    assert (places.sort(-1).values.diff() > 0).all(), "a continuation was drawn twice"
    wanted = inclusion(p, K)
    seen = torch.bincount(places.flatten(), minlength=n) / rows
    often = wanted * rows > 10
    z = ((seen - wanted) / (wanted * (1 - wanted) / rows).sqrt())[often]
    assert z.abs().max() < 5.5
    assert z.square().mean() < 1 + 5 * math.sqrt(2 / len(z))


# ---- the law, for every kind of model ------------------------------------------------------------

CASES = [
    ("gpt2", {}),
    ("gpt2", {"use_cache": False}),
    ("llama", {}),
    ("llama", {"cache_implementation": "static"}),
    ("t5", {}),
    ("t5", {"cache_implementation": "static"}),
    ("mamba", {}),
]


@pytest.mark.statistical
@pytest.mark.parametrize(("name", "options"), CASES, ids=str)
def test_generate_draws_without_replacement(name: str, options: dict) -> None:
    log_p = exact(name)
    assert abs(log_p.exp().sum().item() - 1) < 1e-5
    sample = draw(name, 4_000, **options)
    places = which(sample.tokens)
    torch.testing.assert_close(sample.log_prob, log_p[places], rtol=0, atol=2e-4)  # float32 models
    check_law(places, log_p.exp())
    assert_frequencies(torch.bincount(places[:, 0], minlength=len(log_p)), log_p.exp())
    assert (sample.length == LENGTHS[places]).all()
    value = torch.sin(3 * log_p)
    estimate = sample.expectation(value[places], "importance")
    assert_mean(estimate[:, None], (log_p.exp() * value).sum())


@pytest.mark.parametrize("name", ["gpt2", "llama", "t5", "mamba"])
def test_caches_do_not_change_the_sample(name: str) -> None:
    plain = draw(name, 20, use_cache=False)
    kinds = [{}] if name == "mamba" else [{}, {"cache_implementation": "static"}]
    for options in kinds:
        cached = draw(name, 20, **options)
        assert torch.equal(cached.tokens, plain.tokens)
        torch.testing.assert_close(cached.log_prob, plain.log_prob, rtol=0, atol=2e-4)


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_left_padding_and_the_rest_of_the_batch_do_not_change_a_row(name: str) -> None:
    prompts = torch.tensor([[EOS, EOS, 0, 1], [2, 1, 0, 3], [EOS, 1, 2, 2]])
    mask = torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1], [0, 1, 1, 1]])
    options = {"custom_generate": hf.stochastic_beam_search, "num_beams": K, "max_new_tokens": LENGTH}
    batch = make(name).generate(prompts, attention_mask=mask, generator=ag.CounterRNG(7), **options)
    for i, kept in enumerate(mask.bool()):
        alone = make(name).generate(
            prompts[i : i + 1, kept],
            attention_mask=mask[i : i + 1, kept],
            generator=ag.CounterRNG(7),
            rows=torch.tensor([i]),
            **options,
        )
        assert torch.equal(which(alone.tokens), which(batch.tokens[i : i + 1]))
        torch.testing.assert_close(alone.log_prob[0], batch.log_prob[i], rtol=0, atol=1e-4)
    again = hf.score(make(name), {"input_ids": prompts, "attention_mask": mask}, batch)
    torch.testing.assert_close(again.double(), batch.log_prob, rtol=0, atol=1e-4)


def test_one_beam_and_all_of_them() -> None:
    one = draw("llama", 3, num_beams=1)
    assert one.tokens.shape[:2] == (3, 1)
    everything = draw("llama", 1, num_beams=360)
    assert everything.valid.sum() == len(LEAVES)
    assert sorted(which(everything.tokens)[0, : len(LEAVES)].tolist()) == list(range(len(LEAVES)))
    assert everything.kappa == -math.inf


# ---- processors and criteria ---------------------------------------------------------------------


def test_processors_act_before_the_softmax() -> None:
    sample = draw("llama", 5, do_sample=True, temperature=0.5, top_k=2, top_p=1.0)
    processors = transformers.LogitsProcessorList(
        [transformers.TemperatureLogitsWarper(0.5), transformers.TopKLogitsWarper(2)]
    )
    again = hf.score(make("llama"), PROMPT.expand(5, -1), sample, logits_processor=processors)
    torch.testing.assert_close(again.double(), sample.log_prob, rtol=0, atol=1e-4)
    cold = draw("llama", 5, do_sample=True, temperature=0.5, top_k=0)
    again = hf.score(make("llama"), PROMPT.expand(5, -1), cold, tau=0.5)
    torch.testing.assert_close(again.double(), cold.log_prob, rtol=0, atol=1e-4)


def test_constraints_that_count_beams() -> None:
    """`prefix_allowed_tokens_fn` divides the rows by the number of beams."""

    def allowed(row: int, tokens: Tensor) -> list[int]:
        return [row, EOS]  # row 0 says 0 or ends, row 1 says 1 or ends

    sample = draw("gpt2", 2, prefix_allowed_tokens_fn=allowed)
    for row in (0, 1):
        assert set(sample.tokens[row].flatten().tolist()) <= {row, EOS}
    assert sample.valid.all()


def test_lengths_and_other_criteria() -> None:
    long = draw("llama", 5, min_new_tokens=3)
    assert (long.length >= 4).all()

    class Twice(transformers.StoppingCriteria):
        """Stops when a token is said twice in a row."""

        def __call__(self, input_ids: Tensor, scores: Tensor, **kwargs: Any) -> Tensor:
            assert input_ids.shape[1] > PROMPT.shape[1], "with the prompt"
            return input_ids[:, -1] == input_ids[:, -2]

    sample = draw("llama", 50, stopping_criteria=[Twice()])
    tokens = torch.cat([PROMPT.expand(50, K, -1)[..., -1:], sample.tokens], -1)
    inside = torch.arange(1, LENGTH) < sample.length[..., None]  # before the last token
    assert not ((tokens[..., 1:-1] == tokens[..., :-2])[..., : LENGTH - 1] & inside).any()
    assert sample.finished.any()


# ---- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {"length_penalty": 2.0},
            r"`generate\(length_penalty=2.0\)` is refused: .* no longer a sample",
        ),
        ({"early_stopping": True}, r"`generate\(early_stopping=True\)` is refused"),
        ({"num_return_sequences": 2}, r"num_return_sequences=...\)` must be `num_beams` = 3"),
    ],
    ids=lambda x: next(iter(x)) if isinstance(x, dict) else "",
)
def test_what_is_not_a_sample_is_refused(options: dict, sentence: str) -> None:
    with pytest.raises(ag.ArgradError, match=sentence):
        draw("gpt2", **options)
    assert draw("gpt2", early_stopping="never", length_penalty=0.0, num_return_sequences=K).valid.all()


def test_scores_of_wrong_shape() -> None:
    with pytest.raises(ag.InputError, match=r"prompts=...\)` must have shape \(2, p\)"):
        hf.score(make("gpt2"), PROMPT, draw("gpt2", 2))


# ---- inside transformers' own beam search --------------------------------------------------------


@pytest.mark.statistical
@pytest.mark.parametrize("name", ["gpt2", "t5"])
def test_the_processor_draws_without_replacement(name: str) -> None:
    rows = 3_000
    prompt = PROMPT.expand(rows, -1)
    out = make(name).generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        logits_processor=[hf.StochasticBeamProcessor(K, generator=ag.CounterRNG(1))],
        num_beams=K,
        num_return_sequences=K,
        max_new_tokens=LENGTH,
        do_sample=False,
        length_penalty=0.0,
        early_stopping="never",
        return_dict_in_generate=True,
        output_scores=True,
    )
    start = 1 if name == "t5" else PROMPT.shape[1]
    places = which(out.sequences[:, start:].view(rows, K, -1))
    check_law(places, exact(name).exp())
    values = out.sequences_scores.view(rows, K)  # the perturbed log-probabilities
    assert (values.diff() <= 0).all()
    assert abs(values[:, 0].mean().item() - 0.5772) < 5 * math.pi / math.sqrt(6 * rows)


# ---- gradients -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gpt2", "llama", "t5", "mamba"])
def test_scores_have_a_gradient(name: str) -> None:
    model, sample = make(name), draw(name, 4)
    prompts = PROMPT.expand(4, -1)
    log_prob = hf.score(model, prompts, sample)
    torch.testing.assert_close(log_prob.double(), sample.log_prob, rtol=0, atol=2e-4)
    terms = hf.score(model, prompts, sample, per_token=True)
    assert terms.shape == sample.tokens.shape
    torch.testing.assert_close(terms.sum(-1), log_prob)
    model.zero_grad()
    (-sample.surrogate(lambda s: s.length.float(), log_prob)).mean().backward()
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    assert grads
    assert all(g.isfinite().all() for g in grads)
    assert any((g != 0).any() for g in grads)
    model.zero_grad()


@pytest.mark.statistical
def test_the_surrogate_is_unbiased_for_the_parameters() -> None:
    model = make("llama")
    weight = model.model.norm.weight
    count = len(LEAVES)
    everything = ag.Sequences(
        tokens=TOKENS[None],
        length=LENGTHS[None],
        log_prob=exact("llama")[None],
        finished=torch.ones(1, count, dtype=torch.bool),
        valid=torch.ones(1, count, dtype=torch.bool),
    )
    reward = torch.sin(3 * exact("llama")).float() + 2
    log_p = hf.score(model, PROMPT, everything)[0]
    (wanted,) = torch.autograd.grad((log_p.exp() * reward).sum(), weight)
    estimates = []
    for seed in range(60):
        sample = draw("llama", 40, seed)
        log_prob = hf.score(model, PROMPT.expand(40, -1), sample)
        loss = sample.surrogate(reward[which(sample.tokens)], log_prob).mean()
        estimates.append(torch.autograd.grad(loss, weight)[0])
    assert_mean(torch.stack(estimates), wanted, alpha=1e-7)  # 60 batches: t has heavier tails than z


# ---- every other sampler -------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gpt2", "llama", "t5", "mamba"])
def test_models_as_step_functions(name: str) -> None:
    prompts = PROMPT.expand(2, -1)
    arguments = hf.decoder(
        make(name), prompts, attention_mask=torch.ones_like(prompts), max_new_tokens=LENGTH
    )
    log_p = exact(name)
    rng = ag.CounterRNG(0)
    search = ag.stochastic_beam_search(k=K, generator=rng, **arguments)
    assert torch.equal(which(search.tokens), which(draw(name, 2).tokens))
    sampler = ag.UniqueSampler(generator=rng, **arguments)
    sampler.draw(2), sampler.draw(4)
    samples = [
        search,
        sampler.sample,
        ag.beam_search(k=4, **arguments),
        ag.ancestral_sample(n=4, generator=rng, **arguments),
        ag.arithmetic_sample(n=4, generator=rng, **arguments),
    ]
    for sample in samples:
        places = which(sample.tokens)
        torch.testing.assert_close(sample.log_prob, log_p[places], rtol=0, atol=2e-4)
    assert len(set(which(sampler.sample.tokens)[0].tolist())) == 6
    tokens = torch.tensor([[1, 0, 2, 1], [0, EOS, EOS, EOS]])
    q = ag.rollout(tokens=tokens, reward=lambda t, n: n.double(), n=3, generator=rng, **arguments)
    assert q[0, 3] == 4
    assert q[1].tolist()[1:] == [2, 0, 0]
    assert ((q[:, 0] >= 1) & (q[:, 0] <= 4)).all()


def test_without_transformers_a_sentence_says_what_to_install() -> None:
    code = """
import sys
sys.modules["transformers"] = None  # as if it were not there
import argrad as ag
try:
    ag.integrations.huggingface
except ag.ArgradError as error:
    assert "argrad[hf]" in str(error), error
else:
    raise AssertionError("no error")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def test_the_module_is_found_by_its_name() -> None:
    assert ag.integrations.huggingface.__all__ == [
        "StochasticBeamProcessor",
        "decoder",
        "score",
        "stochastic_beam_search",
    ]
    with pytest.raises(AttributeError, match="no attribute 'tensorflow'"):
        ag.integrations.tensorflow  # noqa: B018
