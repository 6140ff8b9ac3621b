"""Lightning: a callback that saves when due and stops the trainer when told to.

trainer = Trainer(callbacks=[GpuflowCheckpoint(ckpt)])
trainer.fit(model, data, ckpt_path=ckpt.resume_from)
"""

from __future__ import annotations

import contextlib
from typing import Any

from gpuflow.runtime import elastic, progress
from gpuflow.runtime.checkpoints import training
from gpuflow.runtime.checkpoints.training import Checkpointing

try:
    from lightning.pytorch.callbacks import Callback  # type: ignore[import-not-found,unused-ignore]  # an extra
except ImportError:
    from pytorch_lightning.callbacks import Callback  # type: ignore[import-not-found,unused-ignore]  # an extra


class GpuflowCheckpoint(Callback):  # type: ignore[misc,unused-ignore]  # its base is of that extra
    """Saves after an optimizer step. Every rank takes part, as Lightning's own saving asks for."""

    def __init__(self, ckpt: Checkpointing) -> None:
        super().__init__()
        self.ckpt = ckpt
        self._step, self._total = -1, 0

    def on_train_start(self, trainer: Any, module: Any) -> None:
        """Lightning ends a training on SIGTERM at once, without a save: hear it first."""
        if (found := training.sharded_kind(trainer.strategy)) is not None:
            raise training.ShardedState(training.sharded_sentence("model", found))
        training.refuse_sharded("model", module)
        self.ckpt.listen()
        self._step = trainer.global_step
        with contextlib.suppress(Exception):  # it may be infinite, or not known yet: then nothing is told
            self._total = int(trainer.estimated_stepping_batches)

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Asked after each optimizer step: in between, gradients are being accumulated that no checkpoint holds."""
        if module.automatic_optimization and trainer.global_step == self._step:
            return
        self._step = trainer.global_step
        if elastic.writes() and self._total > 0:
            loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
            progress(trainer.global_step, self._total, **{} if loss is None else {"loss": loss})
        due, stop = elastic.agree(self.ckpt)
        if due:
            name = f"step-{trainer.global_step:08d}"
            if elastic.writes():
                self.ckpt.save(lambda path: _save(trainer, path), name)
            else:
                trainer.save_checkpoint(name)
        if stop:
            # Whatever the least was to be: who does not leave now is killed, and the next attempt goes on from here.
            trainer.fit_loop.min_epochs = 0
            trainer.fit_loop.epoch_loop.min_steps = None
            trainer.should_stop = True


def _save(trainer: Any, path: str) -> None:
    """Rank 0 writes; the others wait for it in a barrier, to which it comes also when the disk refuses the file."""
    try:
        trainer.save_checkpoint(path)
    except OSError as error:
        if training.is_disk_refusal(error):
            trainer.strategy.barrier("Trainer.save_checkpoint")
        raise
