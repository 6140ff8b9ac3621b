"""Lightning: a callback that saves when due and stops the trainer when told to.

trainer = Trainer(callbacks=[GpuflowCheckpoint(ckpt)])
trainer.fit(model, data, ckpt_path=ckpt.resume_from)
"""

from __future__ import annotations

from typing import Any

from gpuflow.runtime.saving import Checkpointing

try:
    from lightning.pytorch.callbacks import Callback  # type: ignore[import-not-found,unused-ignore]  # an extra
except ImportError:
    from pytorch_lightning.callbacks import Callback  # type: ignore[import-not-found,unused-ignore]  # an extra


class GpuflowCheckpoint(Callback):  # type: ignore[misc,unused-ignore]  # its base is of that extra
    """Saves at the end of a batch. Every rank takes part, as Lightning's own saving asks for."""

    def __init__(self, ckpt: Checkpointing) -> None:
        super().__init__()
        self.ckpt = ckpt

    def on_train_start(self, trainer: Any, module: Any) -> None:
        """Lightning ends a training on SIGTERM at once, without a save: hear it first."""
        self.ckpt.listen()

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Asked after each batch; the ranks agree before anyone saves."""
        due, stop = (
            trainer.strategy.reduce_boolean_decision(vote, all=False)
            for vote in (self.ckpt.due(), self.ckpt.interrupted)
        )
        if due:
            name = f"step-{trainer.global_step:08d}"
            if trainer.is_global_zero:
                self.ckpt.save(trainer.save_checkpoint, name)
            else:
                trainer.save_checkpoint(name)
        if stop:
            trainer.should_stop = True
