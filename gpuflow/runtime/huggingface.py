"""Hugging Face Trainer: a callback that asks for a save when due, marks finished checkpoints, and stops when told to.

arguments = TrainingArguments(output_dir=ckpt.directory.path, save_strategy="no", ...)
trainer = Trainer(..., callbacks=[GpuflowCallback(ckpt)])
trainer.train(resume_from_checkpoint=ckpt.resume_from)
"""

from __future__ import annotations

import os
from typing import Any

from transformers import TrainerCallback  # type: ignore[import-not-found,unused-ignore]  # an extra

from gpuflow.runtime.saving import Checkpointing


class GpuflowCallback(TrainerCallback):  # type: ignore[misc,unused-ignore]  # its base is of that extra
    """The Trainer writes `checkpoint-<step>` in place, so a marker says when one is finished."""

    def __init__(self, ckpt: Checkpointing) -> None:
        self.ckpt = ckpt

    def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> Any:
        """Asked after each optimizer step."""
        if self.ckpt.due():
            control.should_save = True
        if self.ckpt.interrupted:
            control.should_training_stop = True
        return control

    def on_save(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """The checkpoint is written: finish it."""
        if state.is_world_process_zero:
            folder = os.path.join(args.output_dir, f"checkpoint-{state.global_step}")
            if os.path.isdir(folder):
                self.ckpt.finish(folder)
