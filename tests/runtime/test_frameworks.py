"""The helpers for PyTorch, Lightning and the Hugging Face Trainer, where these are installed."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from gpuflow.runtime import checkpointing

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed here")


def test_a_saved_training_goes_on_as_if_it_had_never_stopped(tmp_path: Path) -> None:
    from gpuflow.runtime import pytorch

    def fresh() -> tuple[Any, Any]:
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 4))
        return model, torch.optim.AdamW(model.parameters())

    def step(model: Any, optimizer: Any) -> None:
        loss = model(torch.randn(16, 4)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    model, optimizer = fresh()
    with checkpointing(str(tmp_path)) as ckpt:
        saver = pytorch.Saver(ckpt, model=model, optimizer=optimizer)
        for index in range(6):
            if index == 3:
                saver.save(step=index)
                ckpt.wait()
            step(model, optimizer)
    other, other_optimizer = fresh()
    with checkpointing(str(tmp_path)) as ckpt:
        facts = pytorch.Saver(ckpt, model=other, optimizer=other_optimizer).restore()
        for _ in range(facts["step"], 6):
            step(other, other_optimizer)
    for name, value in model.state_dict().items():
        assert torch.equal(value, other.state_dict()[name])


def test_a_state_saved_in_the_background_is_the_one_at_the_call(tmp_path: Path) -> None:
    from gpuflow.runtime import pytorch

    class Part:
        value = torch.zeros(1000)

        def state_dict(self) -> dict[str, Any]:
            return {"value": self.value}

    part = Part()
    with checkpointing(str(tmp_path)) as ckpt:
        pytorch.Saver(ckpt, part=part).save()
        part.value.fill_(7)
        ckpt.wait()
        saved = torch.load(ckpt.resume_from, weights_only=False)
    assert saved["parts"]["part"]["value"].sum() == 0


def test_outside_torchrun_agreeing_is_asking_oneself(tmp_path: Path) -> None:
    from gpuflow.runtime import elastic

    with checkpointing(str(tmp_path), every=0) as ckpt:
        assert (elastic.rank(), elastic.agree(ckpt)) == (0, (True, False))


def test_lightning_saves_when_due_and_stops_when_told(tmp_path: Path) -> None:
    pl: Any = pytest.importorskip("pytorch_lightning", reason="Lightning is not installed here")
    from gpuflow.runtime.lightning import GpuflowCheckpoint

    class Model(pl.LightningModule):  # type: ignore[misc,name-defined]  # its base is of an extra
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(2, 1)

        def training_step(self, batch: Any, index: int) -> Any:
            if index == 5:
                os.kill(os.getpid(), signal.SIGTERM)
            return self.layer(batch[0]).mean()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(100, 2)), batch_size=1)
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "accelerator": "cpu"}
    with checkpointing(str(tmp_path), every=1e9) as ckpt:
        callback = GpuflowCheckpoint(ckpt)
        pl.Trainer(max_epochs=1, callbacks=[callback], enable_model_summary=False, **quiet).fit(Model(), data)
        assert ckpt.resume_from is not None
        steps = torch.load(ckpt.resume_from, weights_only=False)["global_step"]
    assert 5 <= steps < 100


def test_the_hugging_face_trainer_saves_when_due_and_stops_when_told(tmp_path: Path) -> None:
    transformers: Any = pytest.importorskip("transformers", reason="transformers is not installed here")
    from gpuflow.runtime.huggingface import GpuflowCallback

    class Model(torch.nn.Module):  # type: ignore[misc,name-defined]  # its base is of an extra
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(2, 1)
            self.count = 0

        def forward(self, x: Any, labels: Any = None) -> dict[str, Any]:
            self.count += 1
            if self.count == 5:
                os.kill(os.getpid(), signal.SIGTERM)
            return {"loss": self.layer(x).mean()}

    rows = [{"x": [0.1, 0.2], "labels": 0.0}] * 64
    with checkpointing(str(tmp_path), every=1e9) as ckpt:
        arguments = transformers.TrainingArguments(
            output_dir=ckpt.directory.path, save_strategy="no", report_to=[], per_device_train_batch_size=1,
            max_steps=50, use_cpu=True, disable_tqdm=True,
        )  # fmt: skip
        trainer = transformers.Trainer(Model(), arguments, train_dataset=rows, callbacks=[GpuflowCallback(ckpt)])
        trainer.train()
        assert ckpt.resume_from is not None
        assert 5 <= int(os.path.basename(ckpt.resume_from).partition("-")[2]) < 50
