"""Hugging Face Trainer: a callback that asks for a save when due, marks finished checkpoints, and stops when told to.

arguments = TrainingArguments(output_dir=ckpt.directory.path, save_strategy="no", ...)
trainer = Trainer(..., callbacks=[GpuflowCallback(ckpt)])
trainer.train(resume_from_checkpoint=ckpt.resume_from)
"""

from __future__ import annotations

import os
import time
from typing import Any

from transformers import TrainerCallback  # type: ignore[import-not-found,unused-ignore]  # an extra

from gpuflow.runtime import elastic, progress
from gpuflow.runtime.checkpoints import training
from gpuflow.runtime.checkpoints.training import Checkpointing


class GpuflowCallback(TrainerCallback):  # type: ignore[misc,unused-ignore]  # its base is of that extra
    """The Trainer writes `checkpoint-<step>` in place, so a marker says when one is finished. Checkpoints beyond
    `ckpt.keep` are removed, also without `save_total_limit`; the best one stays."""

    def __init__(self, ckpt: Checkpointing) -> None:
        self.ckpt = ckpt
        self._asked: float | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """Refuse what could not be kept, before the first step."""
        if os.path.realpath(args.output_dir) != os.path.realpath(self.ckpt.directory.path):
            raise ValueError(
                f"output_dir is {args.output_dir} and the checkpoint directory {self.ckpt.directory.path}: nothing "
                "would be kept; use TrainingArguments(output_dir=ckpt.directory.path)"
            )
        for option in ("fsdp", "deepspeed"):
            if getattr(args, option, None):
                raise training.ShardedState(training.sharded_sentence("model", option))
        training.refuse_sharded("model", others.get("model"))
        self.ckpt.listen()

    def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> Any:
        """Asked after each optimizer step; the ranks agree, because saving is something they do together."""
        if elastic.writes() and state.max_steps > 0:
            logged = state.log_history[-1] if state.log_history else {}
            progress(state.global_step, state.max_steps, **{"loss": logged["loss"]} if "loss" in logged else {})
        due, stop = elastic.agree(self.ckpt)
        if due:
            control.should_save = True
            self._asked = time.monotonic()
            if elastic.writes():
                self.ckpt.reopen(self._folder(args, state))
        if stop:
            control.should_training_stop = True
        return control

    def on_save(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """The checkpoint is written when every rank has written its files: then finish it."""
        elastic.barrier()
        folder = self._folder(args, state)
        if not (elastic.writes() and os.path.isdir(folder)):
            return
        seconds = None if self._asked is None else time.monotonic() - self._asked
        self._asked = None
        best = getattr(state, "best_model_checkpoint", None)
        self.ckpt.finish(folder, seconds=seconds, protect=[best] if best else [])

    def _folder(self, args: Any, state: Any) -> str:
        return os.path.join(args.output_dir, f"checkpoint-{state.global_step}")
