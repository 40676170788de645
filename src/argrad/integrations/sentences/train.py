"""Train and evaluate a gated sentence encoder: `python -m argrad.integrations.sentences.train --help`.

    python -m argrad.integrations.sentences.train --model_name_or_path bert-base-uncased \
        --proxy_model_name_or_path distilbert-base-uncased --train_file wiki1m_for_simcse.txt --sts_folder data/sts \
        --keep 0.6 --do_train --do_eval --per_device_train_batch_size 64 --learning_rate 3e-5 --output_dir out

The same command goes on where a killed one was; `--overwrite_output_dir` begins anew.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformers import HfArgumentParser, set_seed

import argrad as ag
from argrad._errors import ArgradError, InputError
from argrad.integrations.sentences.budget import Budget
from argrad.integrations.sentences.data import Example, generated_examples, generated_sts, read_examples
from argrad.integrations.sentences.encoder import GatedEncoder
from argrad.integrations.sentences.objective import SimCSE
from argrad.integrations.sentences.options import DataOptions, ModelOptions, TrainOptions
from argrad.integrations.sentences.sts import Pairs, load_sts
from argrad.integrations.sentences.trainer import SimCSETrainer

GATES = {
    "relaxed": ag.Relaxed,
    "gumbel-st": ag.GumbelST,
    "straight-through": ag.StraightThrough,
    "reinmax": ag.ReinMax,
    "hard-concrete": ag.HardConcrete,
    "leave-one-out": ag.LeaveOneOut,
    "top-k": ag.Relaxed,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run it; returns the exit code."""
    parser = HfArgumentParser((ModelOptions, DataOptions, TrainOptions), description=__doc__)  # pyright: ignore[reportArgumentType]
    words = list(sys.argv[1:] if argv is None else argv)
    model, data, args = parser.parse_args_into_dataclasses(words)
    try:
        run(model, data, args)
    except ArgradError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


def run(model: ModelOptions, data: DataOptions, args: TrainOptions) -> dict[str, float]:
    """Train if asked to, evaluate if asked to; returns the scores, which are in `scores.json` too."""
    set_seed(args.seed)
    args.hub_private_repo = model.private or args.hub_private_repo
    found = examples(data)
    sets = evaluation_sets(data)
    if args.eval_ratio:
        every = args.eval_ratio * len(found) / args.train_batch_size
        args.eval_steps = args.save_steps = args.logging_steps = max(1, round(every))
    trainer = SimCSETrainer(
        objective(model, data),
        args,
        examples=found,
        sets=sets,
        select_on=data.select_on,  # pyright: ignore[reportArgumentType]
        rates={
            k: v for k, v in (("head", model.model_head_lr), ("gate", model.gate_lr)) if v is not None
        },
        evaluate_all=data.evaluate_all,
    )
    if args.do_train:
        trainer.train(resume_from_checkpoint=checkpoint(args))
        trainer.objective.encoder.save_pretrained(str(args.output_dir))
    scores = trainer.evaluate(sets) if sets and (args.do_eval or args.do_predict) else {}
    if scores:
        path = Path(str(args.output_dir)) / "scores.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(scores, indent=1), encoding="utf-8")
    return scores


def checkpoint(args: TrainOptions) -> str | None:
    """The newest whole one to go on from; a kill while one was written leaves it without its last file."""
    if args.resume_from_checkpoint is not None:
        return args.resume_from_checkpoint
    if args.overwrite_output_dir:
        return None
    found = Path(str(args.output_dir)).glob("checkpoint-*")
    whole = [folder for folder in found if _is_json(folder / "trainer_state.json")]
    newest = max(whole, key=lambda folder: int(folder.name.rpartition("-")[2]), default=None)
    return None if newest is None else str(newest)


def _is_json(path: Path) -> bool:
    try:
        json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return True


def objective(model: ModelOptions, data: DataOptions) -> SimCSE:
    """Encoder and loss as the flags say."""
    options: dict[str, Any] = {
        "mode": model.gate_mode,
        "pooling": model.pooler_type.replace("_", "-"),
        "head": "mlp" if model.head else None,
        "head_at_test": not model.mlp_only_train,
        "max_length": data.max_seq_length,
        "gate": gate(model),
    }
    if model.model_name_or_path == "tiny":
        texts = [s for example in generated_examples(1000, triples=True) for s in example]
        encoder = GatedEncoder.tiny(texts, **options)
    else:
        encoder = GatedEncoder.build(
            model.model_name_or_path,
            layers=model.layers,
            proxy=model.proxy_model_name_or_path,
            proxy_layers=model.proxy_layers,
            **options,
        )
    if model.freeze_backbone:
        encoder.backbone.requires_grad_(False)
    budget = None
    if model.keep is not None and model.gate not in ("none", "top-k"):
        budget = Budget(model.keep, model.budget_weight, model.budget_kind)  # pyright: ignore[reportArgumentType]
    return SimCSE(
        encoder,
        budget,
        tau=model.temp,
        hard_negative_weight=model.hard_negative_weight,
        chunk=model.chunk,
    )


def gate(model: ModelOptions) -> dict[str, Any] | None:
    """Options of `TokenGate`; None for no gate."""
    if model.gate == "none":
        return None
    if model.gate not in GATES:
        raise InputError(f"`--gate` must be one of none, {', '.join(GATES)}; got {model.gate!r}.")
    estimator = GATES[model.gate]()
    found: dict[str, Any] = {
        "estimator": estimator,
        "keep_bias": model.keep_bias,
        "special_tokens": model.special_tokens,
        "views": model.gate_views,
    }
    if isinstance(estimator, ag.Relaxed):
        found["schedule"] = ag.schedules.Exponential(
            model.init_tau, model.exp_scheduler_hyper, model.min_tau, every=1
        )
    if model.gate == "top-k":
        found["k"] = 0.6 if model.keep is None else model.keep
    return found


def examples(data: DataOptions) -> list[Example]:
    """What to train on."""
    if data.train_file == "generated":
        found = generated_examples(512)
    elif data.train_file is not None:
        found = read_examples(data.train_file)
    elif data.dataset_name is not None:
        found = _from_hub(data)
    else:
        raise InputError("give --train_file or --dataset_name.")
    return found[: data.max_train_samples]


def _from_hub(data: DataOptions) -> list[Example]:
    try:
        datasets: Any = importlib.import_module("datasets")
    except ImportError:
        raise InputError(
            "--dataset_name needs the package datasets: pip install datasets. Or give --train_file."
        ) from None
    rows = datasets.load_dataset(data.dataset_name, data.dataset_config_name, split="train")
    return [tuple(str(value) for value in row.values()) for row in rows]


def evaluation_sets(data: DataOptions) -> dict[str, Pairs]:
    """The STS sets; none if no folder was given."""
    if data.sts_folder is None:
        return {}
    return generated_sts(40) if data.sts_folder == "generated" else load_sts(data.sts_folder)


if __name__ == "__main__":
    sys.exit(main())
