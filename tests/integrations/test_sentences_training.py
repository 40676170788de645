"""SimCSE on Hugging Face's Trainer: flags, rates, true large batches, checkpoints that keep the temperature."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import HfArgumentParser, TrainerCallback

import argrad as ag
from argrad._errors import InputError
from argrad.integrations.sentences.budget import Budget
from argrad.integrations.sentences.data import generated_examples, generated_sts
from argrad.integrations.sentences.encoder import GatedEncoder
from argrad.integrations.sentences.objective import SimCSE
from argrad.integrations.sentences.options import DataOptions, ModelOptions, TrainOptions
from argrad.integrations.sentences.train import GATES, checkpoint, gate, main, objective, run
from argrad.integrations.sentences.trainer import SimCSETrainer, parameter_groups

EXAMPLES = generated_examples(24)
WORDS = [s for example in generated_examples(500) for s in example]
SETS = {name: pairs for name, pairs in generated_sts(6).items() if name == "STSB-dev"}

# the command line of the script that trained the first such gate, except fp16, which needs a GPU
SCRIPT = """--model_name_or_path roberta-base --proxy_model_name_or_path distilroberta-base
    --dataset_name JeremiahZ/simcse_sup_nli --num_train_epochs 3 --per_device_train_batch_size 512
    --learning_rate 5e-5 --max_seq_length 32 --evaluation_strategy steps --save_strategy steps
    --metric_for_best_model stsbenchmark_train_and_dev_spearman --load_best_model_at_end --pooler_type avg_first_last
    --temp 0.05 --do_eval --do_predict --gradient_accumulation_steps 1 --warmup_ratio 0.06 --weight_decay 0.1
    --save_total_limit 1 --output_dir out --greater_is_better True --private --do_train --hub_model_id name
    --model_class_name GumbelSoftmaxPLMForCL --model_package_name modeling_gumbel_softmax_cl --ignore_transfer_test
    --model_head_lr 5e-5 --model_init_kwargs model_args;config;proxy_config --overwrite_output_dir --use_cpu"""


def made(budget: Budget | None = None, seed: int = 0, **options: object) -> SimCSE:
    torch.manual_seed(seed)
    own = {
        "gate": {"keep_bias": 2.0, "schedule": ag.schedules.Exponential(rate=1e-2, every=1)},
        **options,
    }
    return SimCSE(GatedEncoder.tiny(WORDS, **own), budget)


def arguments(folder: Path, **options: object) -> TrainOptions:
    own = {"max_steps": 4, "save_steps": 2, "eval_steps": 2, "logging_steps": 1, "learning_rate": 1e-3}
    own |= {
        "per_device_train_batch_size": 6,
        "use_cpu": True,
        "report_to": "none",
        "disable_tqdm": True,
    }
    return TrainOptions(output_dir=str(folder), **{**own, **options})


class _Stop(TrainerCallback):
    """Ends training after a step, as a kill between two steps would."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_save(self, args, state, control, **_):
        control.should_training_stop = state.global_step >= self.step


# ---- flags ---------------------------------------------------------------------------------------


def test_the_flags_of_the_published_scripts_are_understood():
    parser = HfArgumentParser((ModelOptions, DataOptions, TrainOptions))
    model, data, args = parser.parse_args_into_dataclasses(SCRIPT.split())
    assert (model.pooler_type, model.temp, model.model_head_lr) == ("avg_first_last", 0.05, 5e-5)
    assert (data.dataset_name, data.max_seq_length) == ("JeremiahZ/simcse_sup_nli", 32)
    assert (args.eval_strategy, args.warmup_steps) == ("steps", 0.06)
    assert args.metric_for_best_model == "stsbenchmark_train_and_dev"


def test_every_flag_is_explained(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    text = " ".join(capsys.readouterr().out.split())
    for kind in (ModelOptions, DataOptions):
        for field in dataclasses.fields(kind):
            assert f"--{field.name} " in text and field.metadata["help"]


@pytest.mark.parametrize("name", GATES)
def test_every_gate_trains(name):
    model = ModelOptions(model_name_or_path="tiny", gate=name, keep=0.5, chunk=0)
    found = objective(model, DataOptions())
    loss = found.backward(found.collate(EXAMPLES[:4]))
    gradient = found.encoder.gate.head[-1].weight.grad
    assert loss.isfinite() and gradient.abs().sum() > 0
    assert (found.budget is None) == (name == "top-k")


def test_wrong_words_are_sentences(tmp_path, capsys):
    shared = [
        "--model_name_or_path",
        "tiny",
        "--output_dir",
        str(tmp_path),
        "--use_cpu",
        "--report_to",
        "none",
    ]
    for words, sentence in {
        (): "give --train_file or --dataset_name",
        ("--train_file", "nowhere.txt"): "nowhere.txt is not there",
        ("--train_file", "generated", "--gate", "magic"): "`--gate` must be one of none, relaxed",
        ("--train_file", "generated", "--pooler_type", "max"): "avg-first-last",
        (
            "--train_file",
            "generated",
            "--gate",
            "none",
            "--keep",
            "0.5",
            "--sts_folder",
            "x",
        ): "x/STS12-en-test",
    }.items():
        assert main([*shared, *words]) == 2
        assert sentence in capsys.readouterr().err
    with pytest.raises(InputError, match="needs an encoder with a gate"):
        made(Budget(0.5), gate=None)
    with pytest.raises(InputError, match="must be 0 for score-function estimators"):
        SimCSE(GatedEncoder.tiny(WORDS, gate={"estimator": ag.LeaveOneOut()}), chunk=2)
    with pytest.raises(InputError, match="must all have as many sentences"):
        made().collate([("a",), ("a", "b", "c")])
    assert gate(ModelOptions(model_name_or_path="x", gate="none")) is None


# ---- one step ------------------------------------------------------------------------------------


@pytest.mark.parametrize("triples", [False, True])
def test_a_chunk_at_a_time_is_the_whole_batch(triples):
    examples = generated_examples(10, triples=triples)
    found = made(Budget(0.1)).eval()  # without noise: a chunk draws other numbers than the whole
    inputs = found.collate(examples)
    whole = found.backward(inputs)
    gradients = [p.grad.clone() for p in found.parameters() if p.grad is not None]
    found.zero_grad()
    found.chunk = 6
    chunked = found.backward(inputs)
    torch.testing.assert_close(chunked, whole)
    again = [p.grad for p in found.parameters() if p.grad is not None]
    torch.testing.assert_close(again, gradients, rtol=1e-4, atol=1e-6)  # float32 sums in another order


def test_the_budget_and_the_views_are_in_the_loss():
    found = made(Budget(0.2, weight=3.0)).eval()
    loss = found(found.collate(EXAMPLES[:5]))
    metrics = found.metrics
    price = 3 * (metrics["kept"] - 0.2)
    torch.testing.assert_close(loss.detach(), metrics["contrastive"] + price)
    assert metrics["alignment"] == pytest.approx(0, abs=1e-5)  # no dropout: both views are one
    found.train()
    found(found.collate(EXAMPLES[:5]))
    assert found.metrics["alignment"] > 1e-3


def test_rates_by_group():
    found = made(head="mlp")
    groups = parameter_groups(found, 1e-3, 0.1, {"encoder.head": 1e-4, "encoder.gate": 1e-2})
    rates = {id(p): (g["lr"], g["weight_decay"]) for g in groups for p in g["params"]}
    names = dict(found.named_parameters())
    assert len(rates) == len(names)
    for name, p in names.items():
        rate = (
            1e-2 if ".gate." in name else 1e-4 if ".head." in name else 1e-3
        )  # the gate has a head too
        assert rates[id(p)] == (rate, 0.1 if p.dim() > 1 else 0.0)


# ---- the Trainer ---------------------------------------------------------------------------------


def test_a_stopped_run_goes_on_to_the_same_numbers(tmp_path):
    def trainer(folder: Path, **options: object) -> SimCSETrainer:
        budget = Budget(0.6, weight=0.1, kind="lagrangian")
        return SimCSETrainer(made(budget), arguments(folder), examples=EXAMPLES, **options)

    whole = trainer(tmp_path / "whole")
    whole.train()
    stopped = trainer(tmp_path / "stopped", callbacks=[_Stop(2)])
    stopped.train()
    assert stopped.state.global_step == 2
    kept = load_file(tmp_path / "stopped" / "checkpoint-2" / "model.safetensors")
    assert kept["encoder.gate.steps"] == 12 and kept["budget.multiplier"] > 0
    torch.manual_seed(99)
    again = trainer(tmp_path / "stopped")
    again.train(resume_from_checkpoint=str(tmp_path / "stopped" / "checkpoint-2"))
    assert again.objective.encoder.gate.tau == whole.objective.encoder.gate.tau < 0.8
    for name, value in whole.objective.state_dict().items():
        assert torch.equal(again.objective.state_dict()[name], value), name
    lines = [
        [
            {k: v for k, v in line.items() if "runtime" not in k and "per_second" not in k}
            for line in t.state.log_history
        ]
        for t in (whole, again)
    ]
    assert lines[0][:-1] == lines[1][:-1]  # the last is about time


def test_scores_are_its_evaluation_and_tensorboard_has_all(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    model = ModelOptions(model_name_or_path="tiny", keep=0.6, model_head_lr=1e-4, chunk=4)
    data = DataOptions(train_file="generated", sts_folder="generated", max_train_samples=24)
    args = arguments(
        tmp_path,
        do_train=True,
        do_eval=True,
        max_steps=2,
        report_to="tensorboard",
        eval_strategy="steps",
        metric_for_best_model="selected",
        load_best_model_at_end=True,
    )
    scores = run(model, data, args)
    assert json.loads((tmp_path / "scores.json").read_text()) == scores
    assert {"eval_avg_test", "eval_sts16", "eval_avg_test_dedup", "eval_sparsity"} <= set(scores)
    events = EventAccumulator(str(next((tmp_path / "runs").iterdir())))
    events.Reload()
    wanted = {"loss", "contrastive", "kept", "tau", "alignment", "uniformity", "learning_rate"}
    assert {f"train/{name}" for name in wanted} <= set(events.Tags()["scalars"])
    assert {"eval/stsbenchmark_dev", "eval/kept", "eval/selected"} <= set(events.Tags()["scalars"])
    loaded = GatedEncoder.from_pretrained(tmp_path)
    assert loaded.encode(WORDS[:3]).shape == (3, 32)


def test_a_checkpoint_that_was_not_finished_is_passed_over(tmp_path):
    args = arguments(tmp_path)
    assert checkpoint(args) is None
    for step, text in ((8, '{"a": 1}'), (12, '{"a": 1}'), (16, '{"a"')):
        (tmp_path / f"checkpoint-{step}").mkdir()
        (tmp_path / f"checkpoint-{step}" / "trainer_state.json").write_text(text)
    (tmp_path / "checkpoint-20").mkdir()
    assert checkpoint(args) == str(tmp_path / "checkpoint-12")
    assert checkpoint(arguments(tmp_path, overwrite_output_dir=True)) is None
    assert checkpoint(arguments(tmp_path, resume_from_checkpoint="x")) == "x"


@pytest.mark.slow
def test_a_killed_run_goes_on_to_the_same_numbers(tmp_path):
    words = "--model_name_or_path tiny --train_file generated --sts_folder generated --keep 0.6 --do_train --do_eval "
    words += (
        "--save_steps 4 --logging_steps 1 --max_steps 12 --per_device_train_batch_size 16 --use_cpu "
    )
    words += "--report_to none"

    def start(folder: str) -> subprocess.Popen:
        command = [sys.executable, "-m", "argrad.integrations.sentences.train", *words.split()]
        return subprocess.Popen(
            [*command, "--output_dir", str(tmp_path / folder)],
            env={**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    assert start("whole").wait() == 0
    killed = start("killed")
    while not list((tmp_path / "killed").glob("checkpoint-4/trainer_state.json")):
        assert killed.poll() is None
        time.sleep(0.05)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert not (tmp_path / "killed" / "scores.json").exists()
    assert start("killed").wait() == 0
    scores = [(tmp_path / name / "scores.json").read_text() for name in ("whole", "killed")]
    assert scores[0] == scores[1]
    weights = [load_file(tmp_path / name / "model.safetensors") for name in ("whole", "killed")]
    assert all(torch.equal(weights[0][k], weights[1][k]) for k in weights[0])
