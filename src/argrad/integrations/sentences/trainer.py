"""SimCSE on Hugging Face's Trainer: rates by group, true large batches, STS scores as its evaluation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers import Trainer, TrainerCallback, TrainingArguments

from argrad._errors import InputError
from argrad.integrations.sentences.data import Example
from argrad.integrations.sentences.evaluate import Selection, evaluate
from argrad.integrations.sentences.objective import SimCSE
from argrad.integrations.sentences.sts import Pairs


def parameter_groups(
    model: nn.Module, rate: float, decay: float, rates: Mapping[str, float]
) -> list[dict[str, Any]]:
    """Parameters with their learning rate and weight decay.

    Args:
        model: whose parameters.
        rate: of all that `rates` does not name.
        decay: of matrices; biases and norms do not decay.
        rates: the rates of submodules, by name (`encoder.head`).
    """
    found: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, p in model.named_parameters():
        if p.requires_grad:
            own = next((r for part, r in rates.items() if name.startswith(f"{part}.")), rate)
            found.setdefault((own, decay if p.dim() > 1 else 0.0), []).append(p)
    return [{"params": ps, "lr": lr, "weight_decay": wd} for (lr, wd), ps in found.items()]


class SimCSETrainer(Trainer):
    """Hugging Face's Trainer for `SimCSE`.

    Everything that changes from step to step is in its checkpoints: the count behind the temperature and the budget's
    multiplier are buffers, dropout and gate draw from torch's own generator. A killed run goes on to the same numbers.
    With several processes (torchrun) each tells a sentence from the others of its own batch.

    Args:
        objective: encoder and loss.
        args: of the Trainer. Set `metric_for_best_model="selected"` to choose checkpoints as `select_on` says.
        examples: to train on.
        sets: STS sets to evaluate on; during training only those that `select_on` needs, unless `evaluate_all`.
        select_on: `stsb-dev`, or `stsb-train+dev`, which half of STS12 to STS15 is in.
        rates: learning rates of parts of the encoder, as `{"head": 1e-4, "gate": 3e-5}`.
        evaluate_all: score all of `sets` at every evaluation.
        options: others of the Trainer (callbacks, ...).
    """

    def __init__(
        self,
        objective: SimCSE,
        args: TrainingArguments,
        *,
        examples: Sequence[Example],
        sets: Mapping[str, Pairs] | None = None,
        select_on: Selection = "stsb-dev",
        rates: Mapping[str, float] | None = None,
        evaluate_all: bool = False,
        **options: Any,
    ) -> None:
        _check_processes(objective, args)
        args.remove_unused_columns = False  # rows are sentences, not columns
        self.objective, self.sets = objective, dict(sets or {})
        self.select_on: Selection = select_on
        self.rates = {f"encoder.{name}": rate for name, rate in (rates or {}).items()}
        self.evaluate_all = evaluate_all
        self._sums: dict[str, Tensor] = {}
        self._count = 0
        super().__init__(
            model=objective,
            args=args,
            data_collator=objective.collate,
            train_dataset=_Rows(examples),
            eval_dataset=self.sets or None,  # the Trainer asks whether there are any
            processing_class=objective.encoder.tokenizer,
            **options,
        )
        self.add_callback(_Clock(objective))

    def create_optimizer(self, model: nn.Module | None = None) -> torch.optim.Optimizer:
        """The Trainer's, with rates by group."""
        if self.optimizer is None:
            kind, options = self.get_optimizer_cls_and_kwargs(self.args)
            rate, decay = self.args.learning_rate, self.args.weight_decay
            self.optimizer = kind(parameter_groups(self.objective, rate, decay, self.rates), **options)
        return self.optimizer

    def training_step(self, model: nn.Module, inputs: Any, num_items_in_batch: Any = None) -> Tensor:
        """Forward and backward; a chunk at a time if the objective says so."""
        chunked = self.objective.chunk > 0
        if not chunked:
            loss = super().training_step(model, inputs, num_items_in_batch)
        else:
            model.train()
            inputs = self._prepare_inputs(inputs)
            share = 1.0 / self.current_gradient_accumulation_steps
            scaler = self.accelerator.scaler
            scale = share * (1.0 if scaler is None else scaler.get_scale())
            with self.compute_loss_context_manager():
                loss = self.objective.backward(inputs, scale=scale) * share
        self._add(self.objective.metrics)
        return loss

    def compute_loss(self, model: nn.Module, inputs: Any, *_: Any, **__: Any) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The loss of a batch."""
        return model(inputs)

    def evaluate(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, eval_dataset: Any = None, ignore_keys: Any = None, metric_key_prefix: str = "eval"
    ) -> dict[str, float]:
        """STS scores: `eval_stsbenchmark_dev`, ..., `eval_kept`, `eval_selected`; `eval_dataset` may be other sets."""
        sets = eval_dataset or (self.sets if self.evaluate_all else self._needed())
        encode = partial(self.objective.encoder.encode_counted, truncate=True)
        scores = evaluate(
            encode,
            sets,
            select_on=self.select_on,
            batch_size=self.args.per_device_eval_batch_size,
        )
        found = {f"{metric_key_prefix}_{k}": v for k, v in scores.table().items()}
        if eval_dataset is None:
            found[f"{metric_key_prefix}_selected"] = scores.selected
        self.log(dict(found))
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, found)
        return found

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """With the means of the objective's metrics since the last line, for TensorBoard and the others."""
        if "loss" in logs and self._count:
            logs |= {name: float(total) / self._count for name, total in self._sums.items()}
            self._sums, self._count = {}, 0
        super().log(logs, start_time)

    def _needed(self) -> dict[str, Pairs]:
        names = ("STSB-dev",) if self.select_on == "stsb-dev" else ("STSB-train", "STSB-dev")
        return {name: self.sets[name] for name in names}

    def _add(self, metrics: Mapping[str, Tensor]) -> None:
        self._sums = {name: self._sums.get(name, 0.0) + value for name, value in metrics.items()}
        self._count += 1


def _check_processes(objective: SimCSE, args: TrainingArguments) -> None:
    if args.n_gpu > 1:
        raise InputError(
            f"SimCSETrainer trains on one GPU a process; this one has {args.n_gpu}. Set CUDA_VISIBLE_DEVICES to one of "
            "them, or start with torchrun."
        )
    if objective.chunk and args.world_size > 1:
        raise InputError(
            f"`SimCSE(chunk={objective.chunk})` takes gradients in one process; there are {args.world_size}. Run one, "
            "which holds any batch, or give chunk=0."
        )


class _Rows(torch.utils.data.Dataset):
    """Examples as a dataset."""

    def __init__(self, examples: Sequence[Example]) -> None:
        self.examples = examples

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, index: int) -> Example:
        return self.examples[index]


class _Clock(TrainerCallback):
    """Advances the temperature of the gate, once an optimizer step, by the sentences of all processes."""

    def __init__(self, objective: SimCSE) -> None:
        self.objective = objective

    def on_step_end(self, args: TrainingArguments, state: Any, control: Any, **_: Any) -> None:
        gate = self.objective.encoder.gate
        if gate is not None:
            gate.step(args.train_batch_size * args.gradient_accumulation_steps * args.world_size)
