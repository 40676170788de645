"""The flags of `python -m argrad.integrations.sentences.train`, besides those of Hugging Face's Trainer.

Names are those of the scripts that first trained such a gate, so that their command lines still work.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from transformers import TrainingArguments


def _flag(default: Any, help: str) -> Any:
    return field(default=default, metadata={"help": help})


_IGNORED = "Accepted and ignored: "


@dataclass
class ModelOptions:
    """Encoder, gate and loss."""

    model_name_or_path: str = field(
        metadata={"help": "Backbone: a folder, or a name of the model hub."}
    )
    proxy_model_name_or_path: str | None = _flag(
        None,
        "Proxy, with the backbone's tokenizer; without it the first --proxy_layers layers of the backbone.",
    )
    proxy_layers: int = _flag(1, "Layers of such a proxy.")
    layers: int | None = _flag(None, "Take only so many layers of the backbone.")
    config_name: str | None = _flag(None, _IGNORED + "the backbone's folder has its configuration.")
    proxy_config_name: str | None = _flag(None, _IGNORED + "the proxy's folder has its configuration.")
    tokenizer_name: str | None = _flag(
        None, _IGNORED + "backbone and proxy share the backbone's tokenizer."
    )
    cache_dir: str | None = _flag(
        None, _IGNORED + "the environment variable HF_HOME says where models are kept."
    )
    use_fast_tokenizer: bool = _flag(True, _IGNORED + "tokenizers are fast.")
    model_revision: str = _flag("main", _IGNORED + "download that revision, and give its folder.")
    gate: str = _flag(
        "relaxed",
        "How the gate is drawn: none, relaxed (soft Gumbel-softmax, as published), gumbel-st, straight-through, "
        "reinmax, hard-concrete, leave-one-out, top-k (exactly --keep of the tokens).",
    )
    gate_mode: str = _flag(
        "value", "value: attention times gate, as published; logit: exactly deleting a token."
    )
    gate_views: str = _flag(
        "shared", "One gate for both views of a sentence (shared), or one each (independent)."
    )
    special_tokens: str = _flag(
        "gate", "What happens to [CLS] and [SEP]: gate (as published), keep or drop."
    )
    keep_bias: float = _flag(2.0, "Log-odds of keeping a token before training, roughly.")
    keep: float | None = _flag(
        None, "Budget: the share of tokens above which keeping costs; none as published."
    )
    budget_weight: float = _flag(2.0, "Weight of that cost.")
    budget_kind: str = _flag("hinge", "hinge, or lagrangian, whose weight is found in training.")
    init_tau: float = _flag(1.0, "Temperature of the gate at the start.")
    min_tau: float = _flag(0.5, "Lowest temperature of the gate.")
    exp_scheduler_hyper: float = _flag(1e-5, "r of the temperature exp(-r t); t counts sentences.")
    temp: float = _flag(0.05, "Temperature of the cosines.")
    pooler_type: str = _flag("avg", "cls, avg, avg_top2, avg_first_last or learned.")
    head: bool = _flag(True, "A projection (linear, tanh) after pooling.")
    mlp_only_train: bool = _flag(False, "Use the projection in training only, not at test.")
    model_head_lr: float | None = _flag(
        None, "Learning rate of the projection; that of the rest if not given."
    )
    gate_lr: float | None = _flag(None, "Learning rate of the gate; that of the rest if not given.")
    hard_negative_weight: float = _flag(0.0, "Added to the logit of an anchor's own hard negative.")
    freeze_backbone: bool = _flag(False, "Train gate, pooling and projection only.")
    chunk: int = _flag(
        0, "Sentences encoded at a time, whatever the batch (gradient cache); 0 for all at once."
    )
    model_class_name: str | None = _flag(None, _IGNORED + "--gate says which model it is.")
    model_package_name: str | None = _flag(None, _IGNORED + "--gate says which model it is.")
    model_init_kwargs: str | None = _flag(None, _IGNORED + "there is nothing to evaluate.")
    trainer_class_name: str | None = _flag(None, _IGNORED + "there is one trainer.")
    trainer_package_name: str | None = _flag(None, _IGNORED + "there is one trainer.")
    ignore_transfer_test: bool = _flag(
        False, _IGNORED + "transfer tasks are not among the evaluations."
    )
    private: bool = _flag(False, "With --push_to_hub: a private repository.")


@dataclass
class DataOptions:
    """What is read."""

    train_file: str | None = _flag(
        None,
        "Sentences, one a line (.txt), or .csv or .json with sent0, sent1 and hard_neg; or 'generated'.",
    )
    dataset_name: str | None = _flag(
        None,
        "Instead: a dataset of the hub (needs the package datasets), with one or three columns of text.",
    )
    dataset_config_name: str | None = _flag(None, "Its configuration.")
    max_seq_length: int = _flag(32, "Tokens of a sentence; longer ones are cut.")
    pad_to_max_length: bool = _flag(False, _IGNORED + "batches are padded to their longest sentence.")
    overwrite_cache: bool = _flag(False, _IGNORED + "nothing is cached.")
    max_train_samples: int | None = _flag(None, "Use only the first so many examples.")
    sts_folder: str | None = _flag(
        None,
        "STS12-en-test, ..., STSBenchmark, SICK; 'generated' needs no files; without it nothing is evaluated.",
    )
    select_on: str = _flag(
        "stsb-dev", "What 'selected' is: stsb-dev, or stsb-train+dev as published (it leaks)."
    )
    evaluate_all: bool = _flag(False, "Score all seven tasks at every evaluation, as published; slow.")


@dataclass
class TrainOptions(TrainingArguments):
    """The Trainer's, with old names and the ratio of the scripts."""

    evaluation_strategy: str | None = _flag(None, "Old name of --eval_strategy.")
    warmup_ratio: float | None = _flag(
        None, "Old name: share of the steps before the full learning rate."
    )
    overwrite_output_dir: bool = _flag(
        False, "Begin anew, even if the folder has a checkpoint to go on from."
    )
    eval_ratio: float | None = _flag(
        None, "Evaluate, log and save this many times an epoch: 1 / eval_ratio."
    )

    def __post_init__(self) -> None:
        if self.evaluation_strategy is not None:
            self.eval_strategy = self.evaluation_strategy
        if self.warmup_ratio is not None:
            self.warmup_steps = self.warmup_ratio
        if self.metric_for_best_model is not None:  # as the scripts said it
            self.metric_for_best_model = self.metric_for_best_model.removesuffix("_spearman")
        super().__post_init__()
