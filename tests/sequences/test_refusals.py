"""What cannot be answered is refused with a sentence that says where and what to do."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

import argrad as ag
from sequence_oracle import Tabular

SMALL = Tabular.random(4, 4)


def search(step=SMALL.step, state=None, k: object = 3, **options) -> ag.SequenceSample:
    state = SMALL.start(2) if state is None else state
    return ag.stochastic_beam_search(step, state, k, **{**SMALL.options, **options})


def returning(answer) -> object:
    return lambda token, state: answer


ZEROS = torch.zeros(2, 4)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"length_penalty": 1.0}, r"length_penalty=1.0\)` is refused: .* no longer a sample"),
        ({"early_stopping": True}, r"early_stopping=True\)` is refused: .* would have won"),
        ({"beam": 3}, "has no option `beam`; it has batch_size, min_len, tau"),
        ({"k": 0}, r"`stochastic_beam_search\(k=...\)` must be an integer of at least 1; got 0"),
        ({"max_len": 0}, r"max_len=...\)` must be an integer of at least 1"),
        ({"min_len": 5}, r"min_len=...\)` must be an integer from 0 to 4; got 5"),
        ({"tau": 0.0}, r"tau=...\)` must be positive"),
        (
            {"tau": torch.ones((), device="meta")},
            r"tau=...\)` must have values; got a tensor on the meta",
        ),
        ({"eos": 4}, r"eos=...\)` must be tokens from 0 to 3.*; got 4"),
        ({"mask": torch.ones(3, dtype=torch.bool)}, r"mask=...\)` must broadcast"),
        (
            {"prefix": torch.zeros(3, 1).long()},
            r"prefix=...\)` must have an entry for each of the 2 rows",
        ),
        (
            {"prefix": torch.zeros(2).long()},
            r"prefix=...\)` must be an integer tensor of shape \(batch",
        ),
        ({"rows": torch.zeros(2)}, r"rows=...\)` must be an integer tensor of shape \(batch,\)"),
        ({"generator": 3}, r"generator=...\)` must be a `torch.Generator`"),
        ({"batch_size": 5}, r"logits of shape \(5, vocabulary\).*; got shape \(2, 4\)"),
        ({"step": 3}, r"step=...\)` must be a function"),
        ({"step": returning(ZEROS)}, r"must return `\(logits, state\)`; got Tensor"),
        ({"step": returning((ZEROS.long(), None))}, "floating-point tensor; got torch.int64"),
        ({"step": returning((None, None))}, "floating-point tensor; got NoneType"),
        ({"step": returning((torch.zeros(2, 3, 4), None))}, r"shape \(batch, vocabulary\)"),
        (
            {"step": returning((ZEROS, None)), "eos": None},
            r"shape \(6, vocabulary\).*; got shape \(2, 4\)",
        ),
        ({"processors": [lambda tokens, x: x[:, :2]]}, r"processors=...\)` must return logits"),
    ],
    ids=lambda x: next(iter(x)) if isinstance(x, dict) else "",
)
def test_bad_arguments(options: dict, sentence: str) -> None:
    with pytest.raises(ag.ArgradError, match=sentence):
        search(**options)


ROWS = torch.tensor([[0, 0], [0, 1]])  # steps taken, number of the row


@pytest.mark.parametrize("function", ["search", "beam", "ancestral", "arithmetic", "unique"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_nan_is_told_with_its_step_and_row(function: str, value: float) -> None:
    def step(tokens: Tensor | None, state: Tensor) -> tuple[Tensor, Tensor]:
        state = state if tokens is None else torch.stack([state[:, 0] + 1, state[:, 1]], 1)
        logits = torch.zeros(len(state), 4)
        logits[(state[:, 0] == 2) & (state[:, 1] == 1), 2] = value
        return logits, state

    options = {"eos": None, "max_len": 4}
    run = {
        "search": lambda: ag.stochastic_beam_search(step, ROWS, 3, **options),
        "beam": lambda: ag.beam_search(step, ROWS, 3, **options),
        "ancestral": lambda: ag.ancestral_sample(step, ROWS, 3, **options),
        "arithmetic": lambda: ag.arithmetic_sample(step, ROWS, 3, **options),
        "unique": lambda: ag.UniqueSampler(step, ROWS, **options).draw(3),
    }[function]
    with pytest.raises(
        ag.InputError, match=rf"got {value} for token 2 at step 2, row 1 \(after \d, \d\)"
    ):
        run()


@pytest.mark.parametrize("sampler", [ag.stochastic_beam_search, ag.beam_search, ag.ancestral_sample])
def test_dead_ends_are_told(sampler) -> None:
    with pytest.raises(ag.InputError, match="forbid every token at step 0, row 0, so that"):
        sampler(SMALL.step, SMALL.start(2), 3, mask=torch.zeros(4, dtype=torch.bool), **SMALL.options)

    def no_way_on(tokens: Tensor, logits: Tensor) -> Tensor:
        return logits if tokens.shape[-1] < 2 else torch.full_like(logits, -math.inf)

    with pytest.raises(ag.InputError, match=r"forbid every token at step 2, row 0 \(after \d, \d\)"):
        sampler(SMALL.step, SMALL.start(2), 3, processors=no_way_on, eos=None, max_len=4)


def test_finished_sequences_may_have_any_logits() -> None:
    """A model need not be right behind the end."""

    def step(tokens: Tensor | None, state: Tensor) -> tuple[Tensor, Tensor]:
        logits, state = SMALL.step(tokens, state)
        if tokens is not None:
            logits = logits.masked_fill((tokens == SMALL.eos)[:, None], math.nan)
        return logits, state

    options = {"generator": ag.CounterRNG(0)}
    assert torch.equal(search(step, **options).tokens, search(**options).tokens)
    for sampler in (ag.beam_search, ag.ancestral_sample, ag.arithmetic_sample):
        assert sampler(step, SMALL.start(2), 3, **SMALL.options).log_prob.isfinite().all()


def test_a_state_with_the_batch_elsewhere() -> None:
    def step(tokens: Tensor | None, state: Tensor) -> tuple[Tensor, Tensor]:
        return torch.zeros(2 if tokens is None else len(tokens), 4), state

    with pytest.raises(ag.InputError, match=r"shape \(1, 2, 8\).* pass `reorder="):
        ag.stochastic_beam_search(step, torch.zeros(1, 2, 8), 3, eos=0, max_len=3)


def test_nothing_drawn_yet() -> None:
    sampler = ag.UniqueSampler(SMALL.step, SMALL.start(), **SMALL.options)
    with pytest.raises(ag.InputError, match=r"nothing was drawn yet. Call `draw\(k\)` first"):
        sampler.sample  # noqa: B018


def test_estimates_of_wrong_shape() -> None:
    sample = search()
    with pytest.raises(
        ag.InputError, match=r"must give one number a sequence, shape \(2, 3\); got shape \(2,\)"
    ):
        sample.expectation(torch.zeros(2))
    with pytest.raises(ag.InputError, match="got NoneType"):
        sample.expectation(lambda s: None)
    with pytest.raises(ag.InputError, match=r"kind=...\)` must be one of unordered, importance"):
        sample.weights("best")  # type: ignore[arg-type]
    reward = torch.zeros(2, 3)
    with pytest.raises(ag.InputError, match="must need a gradient; got a tensor without one"):
        sample.surrogate(reward, sample.log_prob)
    with pytest.raises(ag.InputError, match=r"must have the sample's shape \(2, 3\)"):
        sample.surrogate(reward, torch.zeros(2, requires_grad=True))


def test_rollouts_and_scores_of_wrong_shape() -> None:
    reward = lambda tokens, length: length.double()  # noqa: E731
    with pytest.raises(ag.InputError, match="from 1 to `max_len` = 4 columns"):
        ag.rollout(SMALL.step, SMALL.start(2), torch.zeros(2, 5).long(), reward, **SMALL.options)
    with pytest.raises(
        ag.InputError, match=r"reward=...\)` must return one number a sequence, shape \(32,\)"
    ):
        ag.rollout(
            SMALL.step, SMALL.start(2), torch.zeros(2, 3).long(), lambda t, n: t, **SMALL.options
        )
    with pytest.raises(
        ag.InputError, match=r"tokens=...\)` must be an integer tensor of shape \(batch, k"
    ):
        ag.sequence_log_prob(SMALL.step, SMALL.start(2), torch.zeros(2, 3).long(), torch.zeros(2))
    with pytest.raises(ag.InputError, match=r"length=...\)` must have the tokens' shape"):
        ag.sequence_log_prob(SMALL.step, SMALL.start(2), torch.zeros(2, 3, 4).long(), torch.zeros(2))
