"""A training as one of several ranks: `torchrun -m tests.runtime.ranks WAY FOLDER [SETTING=VALUE ...]`.

Each rank leaves `<folder>/rank-<n>.json`: steps it made, when saves were decided, what it drew.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import torch  # type: ignore[import-not-found,unused-ignore]  # an extra

from gpuflow.runtime import elastic
from gpuflow.runtime.checkpoints.training import Checkpointing

STEPS, PAUSE = 60, 0.05


class Settings:
    """What a test asks for: `every` seconds, `told`: the rank and step of a SIGTERM, `steps`, and what goes wrong."""

    def __init__(self, words: list[str]) -> None:
        given = dict(word.split("=") for word in words)
        self.began = 0.0
        self.every = float(given.get("every", "1e9"))
        self.steps = int(given.get("steps", STEPS))
        self.told = tuple(map(int, given["told"].split("@"))) if "told" in given else None
        self.full_disk, self.broken, self.group = ("full" in given, "broken" in given, "group" in given)

    @property
    def seconds(self) -> float:
        """Since the first step."""
        return time.monotonic() - self.began

    def tell(self, step: int) -> None:
        """Called in each step. As when one node is drained, one rank alone gets the signal."""
        self.began = self.began or time.monotonic()
        if self.told == (elastic.rank(), step):
            os.kill(os.getpid(), signal.SIGTERM)


class Counted(Checkpointing):
    """Counts the saves that were finished."""

    saves = 0

    def _record_save(self, *facts: Any) -> None:
        self.saves += 1
        super()._record_save(*facts)


class Own:
    """A part that differs from rank to rank, as a loader of data does."""

    read: int | None = None

    def state_dict(self) -> dict[str, int]:
        return {"rank": elastic.rank()}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.read = state["rank"]


def with_agree(folder: Path, settings: Settings) -> dict[str, Any]:
    """A loop of one's own, with dropout, so that every rank draws."""
    import torch.distributed as distributed  # type: ignore[import-not-found,unused-ignore]  # an extra

    from gpuflow.runtime import pytorch

    distributed.init_process_group("gloo")
    torch.manual_seed(100 + elastic.rank())
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(0.5)))
    optimizer = torch.optim.AdamW(model.parameters())
    group = distributed.new_group(backend="gloo") if settings.group else None
    draws = {}
    with Counted(str(folder / "c"), every=settings.every) as ckpt:
        own = Own()
        saver = pytorch.Saver(ckpt, model=model, optimizer=optimizer, each_rank={"own": own})
        if settings.broken:
            pytorch.write = lambda state, path: 1 / 0  # type: ignore[assignment]  # whatever it is, it raises
        step = begin = saver.restore().get("step", 0)
        while step < settings.steps:
            batch = torch.randn(4, 8)
            optimizer.zero_grad()
            model(batch).pow(2).mean().backward()
            optimizer.step()
            step += 1
            draws[step] = float(batch[0, 0])
            time.sleep(PAUSE)
            settings.tell(step)
            due, stop = elastic.agree(ckpt, group)
            if due:
                saver.save(step=step)
            if stop:
                break
        ckpt.wait()
        weights = [float(value.detach().double().sum()) for value in model.parameters()]
        finished = ckpt.directory.finished_entries()
        last = pytorch.read(finished[-1].path)["facts"] if finished else None
        result = {"from": begin, "step": step, "saves": ckpt.saves, "draws": draws, "weights": weights, "last": last}
        result["own"] = own.read
    distributed.destroy_process_group()
    return result


def with_lightning(folder: Path, settings: Settings) -> dict[str, Any]:
    import pytorch_lightning as pl  # type: ignore[import-not-found,import-untyped,unused-ignore]  # an extra

    from gpuflow.runtime.lightning import GpuflowCheckpoint

    class Model(pl.LightningModule):  # type: ignore[misc,name-defined,unused-ignore]  # its base is of an extra
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(2, 1)

        def training_step(self, batch: Any, index: int) -> Any:
            time.sleep(PAUSE)
            settings.tell(index)
            return self.layer(batch[0]).mean()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    world = int(os.environ.get("WORLD_SIZE", "1"))
    rows = torch.utils.data.TensorDataset(torch.randn(settings.steps * world, 2))
    with Counted(str(folder / "c"), every=settings.every) as ckpt:
        if settings.full_disk:
            _full_disk_at_first(ckpt)
        trainer = pl.Trainer(
            max_epochs=1, callbacks=[GpuflowCheckpoint(ckpt)], logger=False, enable_checkpointing=False,
            enable_progress_bar=False, enable_model_summary=False, accelerator="cpu", devices=world,
            strategy="ddp" if world > 1 else "auto",
        )  # fmt: skip
        trainer.fit(Model(), torch.utils.data.DataLoader(rows, batch_size=1), ckpt_path=ckpt.resume_from)
        return {"step": trainer.global_step, "saves": ckpt.saves}


def with_huggingface(folder: Path, settings: Settings) -> dict[str, Any]:
    import transformers  # type: ignore[import-not-found,unused-ignore]  # an extra

    from gpuflow.runtime.huggingface import GpuflowCallback

    class Model(torch.nn.Module):  # type: ignore[misc,name-defined,unused-ignore]  # its base is of an extra
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(2, 1)
            self.count = 0

        def forward(self, x: Any, labels: Any = None) -> dict[str, Any]:
            self.count += 1
            time.sleep(PAUSE)
            settings.tell(self.count)
            return {"loss": self.layer(x).mean()}

    class Slow(transformers.TrainerCallback):  # type: ignore[misc,name-defined,unused-ignore]  # the framework has no types
        """Rank 1 is late with its files, and notes whether the folder was called finished without them."""

        early = False

        def on_save(self, args: Any, state: Any, control: Any, **others: Any) -> None:
            if elastic.rank() == 1:
                time.sleep(0.5)
                marker = Path(args.output_dir) / f"checkpoint-{state.global_step}" / ".gpuflow-complete"
                Slow.early = Slow.early or marker.exists()

    rows = [{"x": [0.1, 0.2], "labels": 0.0}] * 640
    with Counted(str(folder / "c"), every=settings.every) as ckpt:
        arguments = transformers.TrainingArguments(
            output_dir=ckpt.directory.path, save_strategy="no", report_to=[], per_device_train_batch_size=1,
            max_steps=settings.steps, use_cpu=True, disable_tqdm=True,
        )  # fmt: skip
        trainer = transformers.Trainer(
            Model(), arguments, train_dataset=rows, callbacks=[Slow(), GpuflowCallback(ckpt)]
        )
        trainer.train(resume_from_checkpoint=ckpt.resume_from)
        return {"step": trainer.state.global_step, "saves": ckpt.saves, "early": Slow.early}


def _full_disk_at_first(ckpt: Checkpointing) -> None:
    """The first file that a save writes finds no room."""
    import errno

    from gpuflow.runtime import lightning

    real, tries = lightning._save, []

    def save(trainer: Any, path: str) -> None:
        tries.append(path)
        if len(tries) == 1:
            io = trainer.strategy.checkpoint_io
            write, io.save_checkpoint = io.save_checkpoint, _no_room(errno.ENOSPC)
            try:
                real(trainer, path)
            finally:
                io.save_checkpoint = write
        else:
            real(trainer, path)

    lightning._save = save


def _no_room(code: int) -> Any:
    def refuse(*facts: Any, **others: Any) -> None:
        raise OSError(code, os.strerror(code))

    return refuse


def main(way: str, folder: str, *words: str) -> None:
    settings = Settings(list(words))
    try:
        result = globals()[f"with_{way}"](Path(folder), settings)
    except (ZeroDivisionError, elastic.SaveFailed) as error:
        result = {"error": type(error).__name__}
    result["seconds"] = settings.seconds
    Path(folder, f"rank-{os.environ.get('RANK', '0')}.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
