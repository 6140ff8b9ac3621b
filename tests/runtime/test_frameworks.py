"""Lightning and the Hugging Face Trainer, where these are installed; with two ranks in test_elastic.py.

Tests gpuflow/runtime/huggingface.py and gpuflow/runtime/lightning.py.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from gpuflow.runtime import checkpointing

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed here (locks/frameworks.txt)")


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("GPUFLOW_")]:
        monkeypatch.delenv(name)


def test_outside_torchrun_agreeing_is_asking_oneself(tmp_path: Path) -> None:
    from gpuflow.runtime import elastic

    with checkpointing(str(tmp_path), every=0) as ckpt:
        assert (elastic.rank(), elastic.world_size(), elastic.agree(ckpt)) == (0, 1, (True, False))


@pytest.fixture
def lightning() -> Any:
    return pytest.importorskip("pytorch_lightning", reason="Lightning is not installed here")


def lightning_model(pl: Any, told: int | None = None) -> Any:
    class Model(pl.LightningModule):  # type: ignore[misc,name-defined]  # its base is of an extra
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(2, 1)

        def training_step(self, batch: Any, index: int) -> Any:
            if index == told:
                os.kill(os.getpid(), signal.SIGTERM)
            return self.layer(batch[0]).mean()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    return Model()


def fit(pl: Any, ckpt: Any, model: Any, **options: Any) -> None:
    from gpuflow.runtime.lightning import GpuflowCheckpoint

    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(100, 2)), batch_size=1)
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "accelerator": "cpu"}
    trainer = pl.Trainer(
        max_epochs=1, callbacks=[GpuflowCheckpoint(ckpt)], enable_model_summary=False, devices=1, **quiet, **options
    )
    trainer.fit(model, data, ckpt_path=ckpt.resume_from)


@pytest.mark.parametrize("least", [{}, {"min_epochs": 1}, {"min_steps": 50}], ids=["plain", "epochs", "steps"])
def test_lightning_saves_when_due_and_stops_when_told(tmp_path: Path, lightning: Any, least: dict[str, int]) -> None:
    model = lightning_model(lightning, told=5)
    with checkpointing(str(tmp_path), every=1e9) as ckpt:
        fit(lightning, ckpt, model, **least)
        assert ckpt.resume_from is not None
        steps = torch.load(ckpt.resume_from, weights_only=False)["global_step"]
    assert steps == 6
    assert model.trainer.global_step == 6, "it went on after the notice"


def test_lightning_saves_after_optimizer_steps_only_and_keeps_the_newest(
    tmp_path: Path, lightning: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In between, gradients are accumulated that no checkpoint holds."""
    saved = []
    with checkpointing(str(tmp_path), every=0) as ckpt:
        real = ckpt.save
        monkeypatch.setattr(ckpt, "save", lambda write, name: (saved.append(name), real(write, name))[1])
        fit(lightning, ckpt, lightning_model(lightning), accumulate_grad_batches=10)
    assert saved == [f"step-{step:08d}" for step in range(1, 11)]
    assert sorted(name for name in os.listdir(tmp_path) if name != ".gpuflow") == saved[-2:]


@pytest.mark.parametrize(("every", "total"), [(1, 100), (10, 10)])
def test_lightning_tells_optimizer_steps_of_all_there_will_be(
    tmp_path: Path, lightning: Any, monkeypatch: pytest.MonkeyPatch, every: int, total: int
) -> None:
    monkeypatch.setenv("GPUFLOW_PROGRESS", str(tmp_path / "progress"))
    with checkpointing(str(tmp_path / "c"), every=1e9) as ckpt:
        fit(lightning, ckpt, lightning_model(lightning), accumulate_grad_batches=every)
    assert (tmp_path / "progress").read_text().startswith(f"{total}/{total} loss=")


@pytest.mark.parametrize("strategy", ["FSDPStrategy", "ModelParallelStrategy"])
def test_lightning_with_a_sharded_model_is_refused_with_a_sentence(
    tmp_path: Path, lightning: Any, strategy: str
) -> None:
    from gpuflow.runtime.checkpoints.training import ShardedState
    from gpuflow.runtime.lightning import GpuflowCheckpoint

    class Trainer:
        global_step = 0

    kind = getattr(lightning.strategies, strategy)
    Trainer.strategy = kind.__new__(kind)  # type: ignore[attr-defined]  # set for the test, or without stubs
    with (
        checkpointing(str(tmp_path)) as ckpt,
        pytest.raises(
            ShardedState, match=rf'"model" is sharded over the ranks \({strategy}\), and gpuflow saves only whole'
        ),
    ):
        GpuflowCheckpoint(ckpt).on_train_start(Trainer(), torch.nn.Linear(1, 1))


@pytest.fixture
def transformers() -> Any:
    return pytest.importorskip("transformers", reason="transformers is not installed here")


def trainer(
    transformers: Any, ckpt: Any, output_dir: str | None = None, told: int | None = None, **options: Any
) -> Any:
    from gpuflow.runtime.huggingface import GpuflowCallback

    class Model(torch.nn.Module):  # type: ignore[misc,name-defined]  # its base is of an extra
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(2, 1)
            self.count = 0

        def forward(self, x: Any, labels: Any = None) -> dict[str, Any]:
            self.count += 1
            if self.count == told:
                os.kill(os.getpid(), signal.SIGTERM)
            return {"loss": self.layer(x).mean()}

    rows = [{"x": [0.1, 0.2], "labels": 0.0}] * 64
    arguments = transformers.TrainingArguments(
        output_dir=output_dir or ckpt.directory.path, save_strategy="no", report_to=[], use_cpu=True,
        per_device_train_batch_size=1, disable_tqdm=True, **options,
    )  # fmt: skip
    return transformers.Trainer(Model(), arguments, train_dataset=rows, callbacks=[GpuflowCallback(ckpt)])


def test_the_hugging_face_trainer_saves_when_due_and_stops_when_told(tmp_path: Path, transformers: Any) -> None:
    with checkpointing(str(tmp_path), every=1e9) as ckpt:
        trainer(transformers, ckpt, told=5, max_steps=50).train()
        assert ckpt.resume_from is not None
        assert 5 <= int(os.path.basename(ckpt.resume_from).partition("-")[2]) < 50
        assert ckpt.save_seconds is not None
    with checkpointing(str(tmp_path), every=1e9) as ckpt:
        again = trainer(transformers, ckpt, max_steps=8)
        again.train(resume_from_checkpoint=ckpt.resume_from)
        assert (again.state.global_step, again.model.count) == (8, 8 - 5)


def test_the_hugging_face_trainer_tells_its_steps_and_its_loss(
    tmp_path: Path, transformers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUFLOW_PROGRESS", str(tmp_path / "progress"))
    with checkpointing(str(tmp_path / "c"), every=1e9) as ckpt:
        trainer(transformers, ckpt, max_steps=8, logging_steps=1).train()
    assert (tmp_path / "progress").read_text().startswith("8/8 loss=")


def test_the_hugging_face_trainer_keeps_the_newest_few_and_the_best(tmp_path: Path, transformers: Any) -> None:
    with checkpointing(str(tmp_path), every=0, keep=2) as ckpt:
        trainer(transformers, ckpt, max_steps=6, gradient_accumulation_steps=2).train()
        assert sorted(name for name in os.listdir(tmp_path) if name != ".gpuflow") == ["checkpoint-5", "checkpoint-6"]
        best = trainer(transformers, ckpt, max_steps=4)
        callback = next(one for one in best.callback_handler.callbacks if hasattr(one, "ckpt"))
        best.state.best_model_checkpoint = str(tmp_path / "checkpoint-5")
        best.state.global_step = 9
        (tmp_path / "checkpoint-9").mkdir()
        callback.on_save(best.args, best.state, best.control)
    assert sorted(name for name in os.listdir(tmp_path) if name != ".gpuflow") == [
        f"checkpoint-{step}" for step in (5, 6, 9)
    ]


def test_a_folder_that_the_trainer_writes_again_is_not_finished_meanwhile(tmp_path: Path, transformers: Any) -> None:
    with checkpointing(str(tmp_path), every=0) as ckpt:
        one = trainer(transformers, ckpt, max_steps=3)
        one.train()
        callback = next(one for one in one.callback_handler.callbacks if hasattr(one, "ckpt"))
        assert (tmp_path / "checkpoint-3" / ".gpuflow-complete").exists()
        callback.on_step_end(one.args, one.state, one.control)
        assert not (tmp_path / "checkpoint-3" / ".gpuflow-complete").exists()


def test_an_output_dir_elsewhere_is_refused_before_the_first_step(tmp_path: Path, transformers: Any) -> None:
    with checkpointing(str(tmp_path / "c")) as ckpt:
        lost = trainer(transformers, ckpt, output_dir=str(tmp_path / "elsewhere"), max_steps=3)
        with pytest.raises(ValueError, match=r"nothing would be kept; use TrainingArguments\(output_dir="):
            lost.train()
        assert lost.model.count == 0


def test_the_hugging_face_trainer_with_fsdp_is_refused_with_a_sentence(tmp_path: Path, transformers: Any) -> None:
    from gpuflow.runtime.checkpoints.training import ShardedState

    with checkpointing(str(tmp_path)) as ckpt:
        one = trainer(transformers, ckpt, max_steps=3)
        one.args.fsdp = ["full_shard"]
        callback = next(one for one in one.callback_handler.callbacks if hasattr(one, "ckpt"))
        with pytest.raises(
            ShardedState, match=r'"model" is sharded over the ranks \(fsdp\), and gpuflow saves only whole'
        ):
            callback.on_train_begin(one.args, one.state, one.control, model=one.model)
