"""The gate as a random choice, and the encoder around it: a tiny random BERT, no download."""

from __future__ import annotations

import copy
import math

import pytest
import torch

import argrad as ag
from argrad.integrations.sentences import (
    DOCUMENT_SCHEDULE,
    POOLINGS,
    Budget,
    GatedEncoder,
    Pooling,
    RandomDrop,
    StopWords,
    TokenGate,
    hard_keep,
)

TEXTS = [
    "a man is playing a large flute",
    "the cat sat on the mat while it rained outside",
    "dogs run",
    "a woman cuts an onion with a knife .",
]
ESTIMATORS = {
    "soft": ag.Relaxed(0.7),
    "gumbel-st": ag.GumbelST(0.7),
    "straight-through": ag.StraightThrough(),
    "reinmax": ag.ReinMax(),
    "gumbel-rao": ag.GumbelRao(0.7, 3),
    "hard-concrete": ag.HardConcrete(),
    "leave-one-out": ag.LeaveOneOut(3),
    "disarm": ag.DisArm(),
}


def tiny(gate=None, **options) -> GatedEncoder:
    torch.manual_seed(0)
    return GatedEncoder.tiny(
        TEXTS, gate={"special_tokens": "gate"} if gate is None else gate, **options
    )


class Given(torch.nn.Module):
    """A proxy whose log-odds are a parameter."""

    def __init__(self, log_odds: torch.Tensor) -> None:
        super().__init__()
        self.log_odds = torch.nn.Parameter(log_odds)

    def forward(self, input_ids, attention_mask):
        return self.log_odds


# ---- hard_keep -------------------------------------------------------------------------------------


def test_hard_keep_takes_the_largest_of_the_tokens_where_none_is_probable() -> None:
    prob = torch.tensor([[0.5, 0.49, 0.9], [0.2, 0.3, 0.9], [0.1, 0.1, 0.9], [0.9, 0.9, 0.9]])
    mask = torch.tensor([[1, 1, 1], [1, 1, 0], [1, 1, 0], [0, 0, 0]])
    expected = torch.tensor([[1, 0, 1], [0, 1, 0], [1, 0, 0], [0, 0, 0]]).bool()
    assert torch.equal(hard_keep(prob, mask), expected)
    assert hard_keep(prob, mask, 0.95).sum(-1).tolist() == [1, 1, 1, 0]
    with pytest.raises(ValueError, match="must have the shape of prob"):
        hard_keep(prob, mask[:2])


# ---- the gate --------------------------------------------------------------------------------------


def scores_of(gate: TokenGate, rows: int = 3, length: int = 5):
    ids = torch.arange(rows * length).view(rows, length) + 1
    mask = torch.ones_like(ids)
    mask[-1, 3:] = 0
    return gate.score(ids, mask)


def test_the_two_class_gumbel_softmax_of_the_document_is_the_relaxed_bit() -> None:
    """Same law: sigma((theta_keep - theta_drop + G - G')/tau) with G - G' logistic."""
    theta, tau, n = 0.8, 0.5, 200_000
    gate = TokenGate(Given(torch.full((1, n), theta)), schedule=tau, special_tokens="gate")
    ids = torch.ones(1, n, dtype=torch.int64)
    ours = gate.sample(gate.score(ids, ids)).detach()[0].sort().values
    torch.manual_seed(1)
    two = torch.stack([torch.full((n,), theta), torch.zeros(n)], -1)
    theirs = torch.nn.functional.gumbel_softmax(two, tau)[..., 0].sort().values
    grid = torch.linspace(0, 1, 50)
    gap = (torch.searchsorted(ours, grid) - torch.searchsorted(theirs, grid)).abs().max() / n
    assert gap < math.sqrt(-math.log(1e-6 / 2) / n)  # two-sample Kolmogorov-Smirnov, alpha = 1e-6


@pytest.mark.parametrize("name", list(ESTIMATORS))
def test_every_estimator_trains_the_gate(name: str) -> None:
    """The gradient has the sign of the cost: the first token must be dropped, the second kept."""
    torch.manual_seed(0)
    gate = TokenGate(Given(torch.zeros(3, 5)), ESTIMATORS[name], special_tokens="gate")
    optimizer = torch.optim.Adam(gate.parameters(), 0.1)
    for _ in range(60):
        scores = scores_of(gate)
        cost = gate.expectation(lambda z: (z[:, 0] + (1 - z[:, 1]) ** 2).sum(), scores)
        optimizer.zero_grad()
        cost.backward()
        optimizer.step()
    prob = gate.keep_prob(scores_of(gate)).detach()
    assert (prob[:, 0] < 0.3).all() or name == "hard-concrete"  # there it is P(z > 0), more than sigma
    assert (prob[:, 1] > 0.7).all()
    assert (prob[:, 0] < prob[:, 1] - 0.4).all()


@pytest.mark.parametrize("estimator", [ag.Relaxed(0.5), ag.StraightThrough(), ag.LeaveOneOut(3)])
def test_k_is_a_number_for_each_sentence(estimator) -> None:
    torch.manual_seed(0)
    gate = TokenGate(Given(torch.randn(3, 5)), estimator, k=0.6, special_tokens="gate")
    scores = scores_of(gate)  # 5, 5 and 3 tokens
    assert gate._k(scores).tolist() == [3, 3, 2]
    assert gate.hard(scores).sum(-1).tolist() == [3, 3, 2]
    drawn = gate.sample(scores)
    assert torch.allclose(drawn.sum(-1), torch.tensor([3.0, 3.0, 2.0]), atol=1e-4)  # float32 marginals
    assert torch.allclose(gate.keep_prob(scores).sum(-1), torch.tensor([3.0, 3.0, 2.0]), atol=1e-4)
    gate.expectation(lambda z: (z[:, :2] ** 2).sum(), scores).backward()
    assert gate.proxy.log_odds.grad.abs().sum() > 0
    assert gate.proxy.log_odds.grad[-1, 3:].abs().sum() == 0
    assert TokenGate(Given(torch.zeros(3, 5)), k=4, special_tokens="gate")._k(scores).tolist() == [
        4,
        4,
        3,
    ]


@pytest.mark.parametrize("what", ["keep", "gate", "drop"])
def test_special_tokens(what: str) -> None:
    gate = TokenGate(Given(torch.zeros(1, 4)), special_tokens=what, special_ids=[2, 3])
    scores = gate.score(torch.tensor([[2, 9, 3, 0]]), torch.tensor([[1, 1, 1, 0]]))
    ends = {"keep": 1.0, "gate": 0.5, "drop": 0.0}[what]
    assert gate.keep_prob(scores).tolist() == [[ends, 0.5, ends, 0.0]]
    drawn = gate.sample(scores).detach()
    assert drawn[0, 3] == 0
    assert what == "gate" or drawn[0, [0, 2]].tolist() == [ends, ends]


def test_an_unknown_word_is_no_special_token() -> None:
    encoder = tiny({"special_tokens": "keep"})
    scores = encoder.gate.score(**encoder.tokenize(["dogs xyzzy run"]))
    assert scores.open.tolist() == [[False, True, True, True, False]]
    assert scores.always.tolist() == [[True, False, False, False, True]]


@pytest.mark.parametrize("name", ["straight-through", "reinmax", "hard-concrete"])
def test_a_drawn_gate_always_keeps_a_token(name: str) -> None:
    gate = TokenGate(Given(torch.full((3, 5), -30.0)), ESTIMATORS[name], special_tokens="gate")
    scores = scores_of(gate)
    drawn = gate.sample(scores)
    assert drawn.sum(-1).tolist() == [1, 1, 1]
    assert drawn[-1, 3:].sum() == 0
    assert gate.hard(scores).sum(-1).tolist() == [1, 1, 1]
    drawn.square().sum().backward()
    assert gate.proxy.log_odds.grad.isfinite().all()


@pytest.mark.parametrize("name", ["soft", "hard-concrete"])
def test_what_is_kept_at_inference_is_what_is_probable(name: str) -> None:
    log_odds = (
        torch.linspace(-3, 3, 15).view(5, 3).T.flip(-1).contiguous()
    )  # a probable token in each row
    gate = TokenGate(Given(log_odds), ESTIMATORS[name], special_tokens="gate")
    scores = scores_of(gate)
    assert torch.equal(gate.hard(scores) > 0, (gate.keep_prob(scores) >= 0.5) & scores.tokens)


def test_the_temperature_counts_samples_or_steps_and_is_saved() -> None:
    gate = TokenGate(Given(torch.zeros(1, 1)), schedule=DOCUMENT_SCHEDULE)
    for _ in range(100):
        gate.step(64)
    assert gate.tau == math.exp(-1e-5 * 6400)
    other = TokenGate(Given(torch.zeros(1, 1)), schedule=DOCUMENT_SCHEDULE)
    other.load_state_dict(gate.state_dict())
    assert other.tau == gate.tau
    gate.step(100_000)
    assert gate.tau == 0.5
    steps = TokenGate(Given(torch.zeros(1, 1)), schedule=DOCUMENT_SCHEDULE, count="steps")
    steps.step(64)
    assert steps.tau == math.exp(-1e-5)


def test_the_schedule_sets_the_temperature_of_the_draw() -> None:
    gate = TokenGate(Given(torch.zeros(1, 1000)), schedule=ag.schedules.Linear(5.0, 0.01, 10))
    ids = torch.ones(1, 1000, dtype=torch.int64)

    def softness() -> float:
        drawn = gate.sample(gate.score(ids, ids)).detach()
        return float((drawn * (1 - drawn)).mean())

    warm = softness()
    gate.step(10)
    assert warm > 0.2 > 0.05 > softness()


def test_bad_gates_get_a_sentence() -> None:
    proxy = Given(torch.zeros(1, 1))
    for match, options in {
        "must be an estimator of argrad": {"estimator": "gumbel"},
        "must be None for LeaveOneOut": {"estimator": ag.LeaveOneOut(), "schedule": 1.0},
        'must be one of "keep", "gate", "drop"': {"special_tokens": "ignore"},
        'must be one of "shared", "independent"': {"views": "both"},
        "a fraction in": {"k": 1.5},
    }.items():
        with pytest.raises(ValueError, match=match):
            TokenGate(proxy, **options)
    with pytest.raises(ValueError, match=r"must give one log-odds a token, shape \(2, 3\)"):
        TokenGate(proxy).score(torch.ones(2, 3), torch.ones(2, 3))


# ---- the budget ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["hinge", "lagrangian"])
def test_the_kept_fraction_obeys_the_budget(kind: str) -> None:
    """A cost that rewards every kept token, against a budget of 60 %."""
    torch.manual_seed(0)
    gate = TokenGate(Given(torch.full((4, 10), 2.0)), special_tokens="gate")
    budget = Budget(0.6, 5.0 if kind == "hinge" else 0.5, kind)
    optimizer = torch.optim.Adam(gate.parameters(), 0.05)
    ids = torch.ones(4, 10, dtype=torch.int64)
    worth = torch.linspace(0.05, 0.3, 10) / 4
    kept = []
    for _ in range(400):
        prob = gate.keep_prob(gate.score(ids, ids))
        loss = -(prob * worth).sum() + budget(prob.mean())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        kept.append(float(prob.mean().detach()))
    assert abs(sum(kept[-100:]) / 100 - 0.6) < 0.05  # subgradient steps swing around it
    assert gate.proxy.log_odds[:, -1].min() > gate.proxy.log_odds[:, 0].max()  # the worthless tokens go


def test_the_multiplier_is_saved_and_rests_in_evaluation() -> None:
    budget = Budget(0.5, 1.0, "lagrangian")
    budget(torch.tensor(0.75))
    other = Budget(0.5, 1.0, "lagrangian")
    other.load_state_dict(budget.state_dict())
    assert other.multiplier == 0.25
    assert other.eval()(torch.tensor(0.75)) == 0.0625
    assert other.multiplier == 0.25
    with pytest.raises(ValueError, match=r"`Budget\(target=...\)` must be in \(0, 1\]"):
        Budget(1.5)


# ---- pooling ---------------------------------------------------------------------------------------


def test_poolings() -> None:
    layers = [torch.randn(2, 4, 3) for _ in range(4)]
    weights = torch.tensor([[1.0, 0.5, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0]])

    def mean(h: torch.Tensor) -> torch.Tensor:
        return (h * weights[..., None]).sum(1) / weights.sum(1)[:, None]

    expected = {
        "cls": layers[-1][:, 0],
        "avg": mean(layers[-1]),
        "avg-top2": mean((layers[-1] + layers[-2]) / 2),
        "avg-first-last": mean((layers[1] + layers[-1]) / 2),
        "learned": mean(layers[-1]),  # starts there
    }
    assert set(POOLINGS) == set(expected)
    for kind, vector in expected.items():
        assert torch.allclose(Pooling(kind, 3)(layers, weights), vector, atol=1e-6)  # float32 sums
    assert Pooling("avg", 3)(layers, torch.zeros(2, 4)).isfinite().all()


def test_learned_pooling_learns_weights_and_ignores_what_is_dropped() -> None:
    torch.manual_seed(0)
    pool = Pooling("learned", 3)
    torch.nn.init.normal_(pool.attend.score.weight)
    layers, weights = [torch.randn(1, 4, 3) for _ in range(2)], torch.tensor([[1.0, 1.0, 0.0, 0.0]])
    changed = [layer.clone() for layer in layers]
    for layer in changed:
        layer[:, 2:] = 100.0
    vector = pool(layers, weights)
    assert torch.allclose(vector, pool(changed, weights), atol=1e-6)  # float32 sums
    assert not torch.allclose(vector, Pooling("avg", 3)(layers, weights), atol=1e-3)


# ---- the encoder -----------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["value", "logit"])
@pytest.mark.parametrize("pooling", POOLINGS)
def test_encode_gives_the_same_for_any_batch(pooling: str, mode: str) -> None:
    encoder = tiny({"special_tokens": "keep"}, pooling=pooling, mode=mode, head="mlp")
    together = encoder.encode(TEXTS)
    for i, text in enumerate(TEXTS):
        assert torch.allclose(encoder.encode(text), together[i], atol=1e-5)  # padding, float32
    assert torch.allclose(encoder.encode(TEXTS, batch_size=2), together, atol=1e-5)
    lengths = encoder.encode(TEXTS, normalize=True).norm(dim=1)
    assert torch.allclose(lengths, torch.ones(4), atol=1e-6)  # float32 norms


def test_removed_tokens_change_nothing_in_logit_mode() -> None:
    encoder = tiny(mode="logit")
    removed, masked = encoder.encode_counted(TEXTS), encoder.encode_counted(TEXTS, remove=False)
    assert torch.equal(removed.kept, masked.kept)
    assert 0 < removed.kept.sum() < removed.tokens.sum()
    assert torch.allclose(removed.embedding, masked.embedding, atol=1e-5)  # float32, other shapes
    inputs = encoder.tokenize(TEXTS)
    assert torch.allclose(encoder.infer(**inputs), masked.embedding, atol=1e-5)
    assert torch.allclose(encoder.eval()(**inputs).embedding, masked.embedding, atol=1e-5)


def test_removal_sees_fewer_tokens(monkeypatch) -> None:
    encoder, seen = tiny(mode="logit"), []
    forward = encoder.backbone.forward
    monkeypatch.setattr(
        encoder.backbone,
        "forward",
        lambda *a, **k: seen.append(int(k["attention_mask"].sum())) or forward(*a, **k),
    )
    encoder._removal = ""
    counted = encoder.encode_counted(TEXTS)
    assert sum(seen) == counted.kept.sum()


def test_value_mode_keeps_tokens_unless_told() -> None:
    encoder = tiny(mode="value")
    plain, forced = encoder.encode(TEXTS), encoder.encode(TEXTS, remove=True)
    assert not torch.allclose(plain, forced, atol=1e-4)
    assert torch.allclose(
        forced, tiny(mode="logit").encode(TEXTS), atol=1e-5
    )  # the same random weights


@pytest.mark.parametrize("views", ["shared", "independent"])
def test_views_share_the_gate_or_do_not(views: str) -> None:
    encoder = tiny({"special_tokens": "gate", "views": views})
    encoded = encoder(**encoder.tokenize(TEXTS), views=2)
    one, two = encoded.gate.chunk(2)
    assert torch.equal(one, two) == (views == "shared")
    a, b = encoded.embedding.chunk(2)
    assert not torch.allclose(a, b)  # dropout
    assert encoded.keep_prob.shape == encoded.mask.shape
    assert (encoded.keep_prob[~encoded.mask] == 0).all()


def test_a_generator_decides_the_gate() -> None:
    encoder = tiny()
    encoder.gate.proxy.eval()  # no dropout there
    inputs = encoder.tokenize(TEXTS)
    gates = [encoder(**inputs, generator=torch.Generator().manual_seed(s)).gate for s in (1, 1, 2)]
    assert torch.equal(gates[0], gates[1])
    assert not torch.equal(gates[0], gates[2])


@pytest.mark.parametrize("name", list(ESTIMATORS))
def test_expected_loss_trains_everything(name: str) -> None:
    encoder = tiny({"estimator": ESTIMATORS[name], "special_tokens": "gate"}, head="mlp", pooling="avg")
    loss, encoded = encoder.expected_loss(
        encoder.tokenize(TEXTS), lambda e: (e[:4] - e[4:]).square().mean(), views=2
    )
    (loss + Budget(0.1)(encoded.kept)).backward()
    assert loss.shape == ()
    for part in (encoder.backbone, encoder.gate.proxy, encoder.gate.head, encoder.head):
        assert sum(p.grad.abs().sum() for p in part.parameters() if p.grad is not None) > 0


def test_leave_one_out_of_an_encoder_is_unbiased() -> None:
    """The gradient for the log-odds of one sentence of four tokens, against the sum over all 16 gates."""
    plain = tiny()
    inputs = plain.tokenize(["dogs run"])
    target = plain.encode("a man cuts an onion")
    proxy = Given(torch.tensor([[0.3, -0.5, 0.8, 0.1]]))
    gate = TokenGate(proxy, ag.Exact(), special_tokens="gate")
    encoder = GatedEncoder(plain.backbone, plain.tokenizer, gate=gate)
    encoder.backbone.eval()  # dropout would be noise of its own

    def gradient() -> torch.Tensor:
        loss, _ = encoder.expected_loss(inputs, lambda e: (e - target).square().sum())
        return torch.autograd.grad(loss, proxy.log_odds)[0]

    exact = gradient()
    gate.estimator = ag.LeaveOneOut(20)
    draws = torch.stack([gradient() for _ in range(20)])
    error = draws.std(0) / math.sqrt(20)
    assert exact.abs().max() > 0.01
    assert (
        (draws.mean(0) - exact).abs() < 6.5 * error
    ).all()  # t with 39 degrees, four values, alpha 1e-6


def test_no_gate_is_the_plain_encoder() -> None:
    torch.manual_seed(0)
    encoder = GatedEncoder.tiny(TEXTS)
    encoded = encoder.eval()(**encoder.tokenize(TEXTS))
    hidden = encoder.backbone(**encoder.tokenize(TEXTS)).last_hidden_state
    mask = encoder.tokenize(TEXTS)["attention_mask"][..., None]
    assert torch.allclose(encoded.embedding, (hidden * mask).sum(1) / mask.sum(1), atol=1e-6)  # float32
    assert encoded.gate is encoded.kept is None
    counted = encoder.encode_counted(TEXTS)
    assert torch.equal(counted.kept, counted.tokens)
    assert encoder.backbone.config._attn_implementation == "sdpa"


def test_the_head_may_be_for_training_only() -> None:
    with_head, without = tiny(head="mlp", head_at_test=False), tiny(head="mlp")
    assert without.encode(TEXTS).abs().max() <= 1  # tanh
    assert not torch.allclose(with_head.encode(TEXTS), without.encode(TEXTS))
    assert torch.allclose(with_head.encode(TEXTS), tiny().encode(TEXTS), atol=1e-6)  # float32


def test_a_copy_is_gated_by_itself() -> None:
    encoder = tiny()
    copied = copy.deepcopy(encoder)
    for parameter in copied.backbone.parameters():
        parameter.data.zero_()
    assert not torch.equal(copied.encode(TEXTS), encoder.encode(TEXTS))
    assert torch.equal(encoder.encode(TEXTS), tiny().encode(TEXTS))


def test_two_encoders_of_one_backbone_keep_their_modes() -> None:
    one = tiny(mode="logit")
    before = one.encode(TEXTS, remove=False)
    other = GatedEncoder(one.backbone, one.tokenizer, gate=one.gate, mode="value")
    assert not torch.allclose(other.encode(TEXTS), before, atol=1e-4)
    assert torch.equal(one.encode(TEXTS, remove=False), before)


def test_a_gate_needs_a_gated_encoder() -> None:
    plain = GatedEncoder.tiny(TEXTS)
    inputs = plain.tokenize(TEXTS)
    with pytest.raises(ValueError, match="must be None for an encoder without a gate"):
        plain(**inputs, gate=inputs["attention_mask"].float())


def test_encoding_leaves_training_mode_and_generator_alone() -> None:
    encoder = tiny().train()
    encoder.backbone.embeddings.eval()
    state = torch.get_rng_state()
    encoder.encode(TEXTS)
    encoder.explain(TEXTS)
    assert torch.equal(torch.get_rng_state(), state)
    assert encoder.training
    assert not encoder.backbone.embeddings.training


# ---- files -----------------------------------------------------------------------------------------

GATES = {
    "none": None,
    "document": {"schedule": DOCUMENT_SCHEDULE, "keep_bias": 2.0, "special_tokens": "gate"},
    "reinmax": {"estimator": ag.ReinMax(1.2), "views": "independent"},
    "subset": {"estimator": ag.Relaxed(0.3), "k": 0.5},
    "learnable": {"schedule": ag.schedules.Learnable(0.9)},
    "loo": {"estimator": ag.LeaveOneOut(3), "count": "steps"},
}


@pytest.mark.parametrize("name", list(GATES))
def test_saved_and_loaded(name: str, tmp_path) -> None:
    torch.manual_seed(0)
    encoder = GatedEncoder.tiny(
        TEXTS, gate=GATES[name], mode="logit", head="mlp", pooling="learned", max_length=20
    )
    if encoder.gate is not None:
        encoder.gate.step(640)
    encoder.save_pretrained(tmp_path)
    loaded = GatedEncoder.from_pretrained(tmp_path)
    assert torch.equal(loaded.encode(TEXTS), encoder.encode(TEXTS))
    assert loaded.max_length == 20
    assert (tmp_path / "model.safetensors").is_file()
    if encoder.gate is not None:
        assert torch.equal(torch.as_tensor(loaded.gate.tau), torch.as_tensor(encoder.gate.tau))
        assert repr(loaded.gate) == repr(encoder.gate)


def test_rules_drop_what_they_say_and_are_saved(tmp_path) -> None:
    plain = tiny()
    for rule in (StopWords(plain.tokenizer), RandomDrop(0.5)):
        gate = {"special_tokens": "drop"}
        encoder = GatedEncoder.build(plain.backbone, tokenizer=plain.tokenizer, proxy=rule, gate=gate)
        encoder.save_pretrained(tmp_path)
        loaded = GatedEncoder.from_pretrained(tmp_path)
        assert str(loaded.explain(TEXTS)) == str(encoder.explain(TEXTS))
    words = StopWords(plain.tokenizer)
    encoder = GatedEncoder.build(
        plain.backbone, tokenizer=plain.tokenizer, proxy=words, gate={"special_tokens": "drop"}
    )
    kept = [t for t, k in zip(*_tokens(encoder, TEXTS[3]), strict=True) if k]
    assert kept == ["woman", "cuts", "onion", "knife"]


def _tokens(encoder: GatedEncoder, text: str):
    one = encoder.explain(text)[0]
    return one.tokens, one.kept


def test_what_cannot_be_saved_is_refused_before_anything_is_written(tmp_path) -> None:
    encoder = tiny()
    encoder.gate.proxy = Given(torch.zeros(1, 1))
    with pytest.raises(NotImplementedError, match="cannot write a proxy of type Given"):
        encoder.save_pretrained(tmp_path / "new")
    assert not (tmp_path / "new").exists()
    encoder = tiny({"estimator": ag.Relaxed(regularizer=ag.Euclidean()), "special_tokens": "gate"})
    with pytest.raises(NotImplementedError, match="settings are not plain numbers"):
        encoder.save_pretrained(tmp_path / "new")


# ---- bad input -------------------------------------------------------------------------------------


def test_bad_sentences_get_a_sentence() -> None:
    encoder = tiny()
    for empty in ("", "  \n"):
        with pytest.raises(ValueError, match=r"must hold words; number 1 has none.*Leave it out"):
            encoder.encode(["dogs run", empty])
    long = "dogs " * 100
    with pytest.raises(
        ValueError, match=r"at most 64 tokens each; got 102 tokens in number 1 .*`truncate=True`"
    ):
        encoder.encode(["dogs run", long])
    assert encoder.encode(["dogs run", long], truncate=True).isfinite().all()
    assert encoder.tokenize([long], max_length=32, truncate=True)["input_ids"].shape == (1, 32)
    with pytest.raises(ValueError, match="must be strings; number 0 is not"):
        encoder.encode([3])
    assert encoder.encode([]).shape == (0, 32)


def test_missing_folders_get_a_sentence(tmp_path) -> None:
    with pytest.raises(ValueError, match=r"there is no such folder.*GatedEncoder.tiny"):
        GatedEncoder.build(tmp_path / "nowhere")
    with pytest.raises(ValueError, match=r"holds no config.json"):
        GatedEncoder.build(str(tmp_path))
    with pytest.raises(ValueError, match=r"has no gated_encoder.json.*GatedEncoder.build"):
        GatedEncoder.from_pretrained(tmp_path)


def test_a_name_that_cannot_be_found_gets_a_sentence(monkeypatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ValueError, match="or a name on the Hugging Face hub; got 'nobody/nothing'"):
        GatedEncoder.build("nobody/nothing")


def test_tokenizers_must_match(tmp_path) -> None:
    torch.manual_seed(0)
    one, other = GatedEncoder.tiny(TEXTS), GatedEncoder.tiny(["other words entirely"])
    for name, encoder in (("one", one), ("other", other)):
        encoder.backbone.save_pretrained(tmp_path / name)
        encoder.tokenizer.save_pretrained(tmp_path / name)
    built = GatedEncoder.build(tmp_path / "one", proxy=tmp_path / "one", gate={})
    assert built.encode(TEXTS).shape == (4, 32)
    with pytest.raises(
        ValueError, match=r"must have the tokenizer of the backbone.*with 8 and 29 tokens"
    ):
        GatedEncoder.build(tmp_path / "one", proxy=tmp_path / "other", gate={})
    with pytest.raises(
        ValueError, match="must give ids below 8, the size of the backbone's vocabulary"
    ):
        GatedEncoder(other.backbone, one.tokenizer)
    with pytest.raises(ValueError, match="the proxy's vocabulary"):
        GatedEncoder(one.backbone, one.tokenizer, gate=TokenGate(other.backbone, special_ids=[0]))


def test_layers_are_cut_off(tmp_path) -> None:
    torch.manual_seed(0)
    one = GatedEncoder.tiny(TEXTS)
    one.backbone.save_pretrained(tmp_path)
    one.tokenizer.save_pretrained(tmp_path)
    cut = GatedEncoder.build(tmp_path, layers=1, pooling="avg")
    hidden = one.eval().backbone(**one.tokenize(TEXTS), output_hidden_states=True).hidden_states[1]
    mask = one.tokenize(TEXTS)["attention_mask"]
    assert torch.allclose(cut.encode(TEXTS), Pooling("avg", 32)([hidden], mask), atol=1e-6)  # float32
    with pytest.raises(ValueError, match="layers"):
        GatedEncoder.build(tmp_path, layers=3)


def test_cls_pooling_needs_cls() -> None:
    with pytest.raises(ValueError, match=r'the gate may drop .CLS.; got.*`special_tokens="keep"`'):
        tiny({"special_tokens": "gate"}, pooling="cls")
    with pytest.raises(ValueError, match=r"Pass the ids of \[CLS\] and \[SEP\]"):
        one = GatedEncoder.tiny(TEXTS)
        GatedEncoder(one.backbone, one.tokenizer, gate=TokenGate(one.backbone))


# ---- explaining ------------------------------------------------------------------------------------


def test_explanations() -> None:
    encoder = tiny()
    found = encoder.explain([TEXTS[0], "dogs <b>"])
    assert [len(one.tokens) for one in found] == [9, 6]
    assert found[0].tokens[:3] == ("[CLS]", "a", "man")
    assert found[0].kept == tuple(p >= 0.5 for p in found[0].keep_prob)
    assert str(found[0]).count("(-") == found[0].kept.count(False)
    assert found.ansi().count("\x1b[9;38;2;") == sum(one.kept.count(False) for one in found)
    page = found.html()
    assert page.count("<del ") == sum(one.kept.count(False) for one in found)
    assert "<b>" not in page
    assert f'title="{found[0].keep_prob[1]:.3f}"' in page
    assert GatedEncoder.tiny(TEXTS).explain("dogs run")[0].kept_fraction == 1


# ---- sentence-transformers -------------------------------------------------------------------------


def test_gated_transformer_encodes_trains_saves_and_loads(tmp_path) -> None:
    st = pytest.importorskip("sentence_transformers")
    from argrad.integrations.sentences import GatedTransformer

    encoder = tiny(mode="logit", head="mlp")
    expected = encoder.encode(TEXTS)
    model = st.SentenceTransformer(modules=[GatedTransformer(encoder)], device="cpu")
    assert torch.allclose(
        model.encode(TEXTS, convert_to_tensor=True), expected, atol=1e-6
    )  # other padding
    assert model.get_embedding_dimension() == 32
    with pytest.raises(ValueError, match="The backbone has positions for 64 tokens"):
        model.max_seq_length = 100
    model.save_pretrained(str(tmp_path))
    loaded = st.SentenceTransformer(str(tmp_path), trust_remote_code=True, device="cpu")
    assert torch.allclose(loaded.encode(TEXTS, convert_to_tensor=True), expected, atol=1e-6)
    assert torch.equal(GatedEncoder.from_pretrained(tmp_path).encode(TEXTS), expected)
    features = loaded.train()(loaded.preprocess(TEXTS))
    features["sentence_embedding"].square().sum().backward()
    assert loaded[0].encoder.gate.head[0].weight.grad.abs().sum() > 0
    loaded[0].encoder.gate.estimator = ag.LeaveOneOut()
    with pytest.raises(NotImplementedError, match="train by `expected_loss`"):
        loaded(loaded.preprocess(TEXTS))
