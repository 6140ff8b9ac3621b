"""The Saver: what is saved is the state at the call, exactly, and can be read back without running code.

Tests gpuflow/runtime/checkpoints/torch_state.py and gpuflow/runtime/pytorch.py.
"""

from __future__ import annotations

import collections
import os
import pickle
import random
import resource
import threading
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from gpuflow.runtime import checkpointing
from gpuflow.runtime.checkpoints.training import Checkpointing

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed here (locks/frameworks.txt)")


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("GPUFLOW_")]:
        monkeypatch.delenv(name)


class Point(NamedTuple):
    x: int
    y: Any


class Part:
    """Anything with a state."""

    def __init__(self, **state: Any) -> None:
        self.state = state

    def state_dict(self) -> dict[str, Any]:
        return self.state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.state = state


def network() -> tuple[Any, Any]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 4))
    return model, torch.optim.AdamW(model.parameters())


def step(model: Any, optimizer: Any) -> None:
    loss = model(torch.randn(16, 4)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def saved(folder: Path, weights_only: bool = False, **parts: Any) -> dict[str, Any]:
    """Save these parts in the background and read the file as PyTorch does."""
    from gpuflow.runtime import pytorch

    with checkpointing(str(folder)) as ckpt:
        pytorch.Saver(ckpt, weights_only=weights_only, **parts).save()
        ckpt.wait()
        assert ckpt.resume_from is not None
        state: dict[str, Any] = torch.load(ckpt.resume_from, weights_only=False)["parts"]
    return state


def test_a_saved_training_goes_on_as_if_it_had_never_stopped(tmp_path: Path) -> None:
    from gpuflow.runtime import pytorch

    model, optimizer = network()
    with checkpointing(str(tmp_path)) as ckpt:
        saver = pytorch.Saver(ckpt, model=model, optimizer=optimizer)
        for index in range(6):
            if index == 3:
                saver.save(step=index)
                ckpt.wait()
            step(model, optimizer)
    other, other_optimizer = network()
    with checkpointing(str(tmp_path)) as ckpt:
        facts = pytorch.Saver(ckpt, model=other, optimizer=other_optimizer).restore()
        for _ in range(facts["step"], 6):
            step(other, other_optimizer)
    for name, value in model.state_dict().items():
        assert torch.equal(value, other.state_dict()[name])


def test_a_state_saved_in_the_background_is_the_one_at_the_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numpy = pytest.importorskip("numpy")
    from gpuflow.runtime import pytorch

    go, real = threading.Event(), pytorch.write
    monkeypatch.setattr(pytorch, "write", lambda state, path: (go.wait(120), real(state, path)))
    part = Part(tensor=torch.zeros(9), array=numpy.zeros(9), names={"a"}, deep=[{"k": [1]}], block=bytearray(b"a"))
    with checkpointing(str(tmp_path)) as ckpt:
        pytorch.Saver(ckpt, part=part).save()
        part.state["tensor"].fill_(7)
        part.state["array"][:] = 7
        part.state["names"].add("b")
        part.state["deep"][0]["k"].append(2)
        part.state["block"][0] = 98
        go.set()
        ckpt.wait()
        assert ckpt.resume_from is not None
        state = torch.load(ckpt.resume_from, weights_only=False)["parts"]["part"]
    assert (float(state["tensor"].sum()), float(state["array"].sum())) == (0.0, 0.0)
    assert (state["names"], state["deep"], state["block"]) == ({"a"}, [{"k": [1]}], bytearray(b"a"))


def test_a_process_that_talks_to_no_other_saves_whatever_its_number_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gpuflow.runtime import pytorch

    monkeypatch.setenv("RANK", "3")
    with checkpointing(str(tmp_path)) as ckpt:
        saver = pytorch.Saver(ckpt, part=Part(a=1))
        saver.save(step=5)
        ckpt.wait()
        torch.manual_seed(1)
        wanted = float(torch.rand(1))
        torch.manual_seed(1)
        saver.save(step=6)
        ckpt.wait()
        assert saver.restore() == {"step": 6}
    assert float(torch.rand(1)) == wanted


def test_containers_keep_their_types_and_what_hangs_on_them(tmp_path: Path) -> None:
    counts = collections.defaultdict(list, {"a": [torch.ones(2)]})
    state = saved(
        tmp_path,
        model=torch.nn.BatchNorm1d(3),
        part=Part(
            counter=collections.Counter(a=3),
            lists=counts,
            point=Point(1, torch.ones(1)),
            ordered=collections.OrderedDict(b=1, a=2),
            names=frozenset({"x"}),
            size=torch.Size([2, 3]),
        ),
    )
    assert state["model"]._metadata == torch.nn.BatchNorm1d(3).state_dict()._metadata
    part = state["part"]
    assert part["counter"] == collections.Counter(a=3)
    assert (type(part["lists"]), part["lists"].default_factory) == (collections.defaultdict, list)
    assert (type(part["point"]), part["point"].x) == (Point, 1)
    assert (type(part["ordered"]), list(part["ordered"])) == (collections.OrderedDict, ["b", "a"])
    assert (part["names"], type(part["size"])) == (frozenset({"x"}), torch.Size)


def test_tied_weights_are_stored_once_and_stay_tied(tmp_path: Path) -> None:
    weight = torch.randn(100, 1000)
    state = saved(tmp_path, part=Part(a=weight, b=weight.view(-1), c=weight[5:6], again=weight))
    (name,) = [name for name in os.listdir(tmp_path) if not name.startswith(".")]
    assert (tmp_path / name).stat().st_size < 1.1 * weight.nbytes
    part = state["part"]
    assert torch.equal(part["c"], weight[5:6])
    part["a"].zero_()
    assert float(part["b"].abs().sum() + part["c"].abs().sum() + part["again"].abs().sum()) == 0.0


def test_buffers_for_the_gpu_are_used_again_and_given_back_when_no_longer_needed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As on a GPU, with tensors of the host in its place."""
    from gpuflow.runtime.checkpoints import torch_state

    waited = []
    monkeypatch.setattr(torch_state, "_is_on_gpu", lambda storage: True)
    monkeypatch.setattr(torch_state, "_pinned_buffer", lambda size: torch.full((size,), 255, dtype=torch.uint8))
    monkeypatch.setattr(torch.cuda, "synchronize", waited.append)
    weight = torch.randn(10, 3)
    state = {"a": weight, "tied": weight[2], "b": torch.randn(30), "none": torch.empty(0), "n": torch.tensor(7)}
    area = torch_state.Staging()
    assert torch_state.FrozenState(state).host_bytes(area.pinned_buffers()) == 128 + 128 + 8
    first = area.copy(state)
    assert waited == [weight.device]
    assert area.pinned_buffers() == {120: 2, 8: 1}
    assert torch_state.FrozenState(state).host_bytes(area.pinned_buffers()) == 0
    assert all(torch.equal(first[name], value) for name, value in state.items())
    assert first["tied"].untyped_storage().data_ptr() == first["a"].untyped_storage().data_ptr()
    places = {value.untyped_storage().data_ptr() for value in first.values()}
    weight.add_(1)
    second = area.copy(state)
    assert {value.untyped_storage().data_ptr() for value in second.values()} == places
    assert torch.equal(second["tied"], weight[2])
    area.copy({"b": state["b"]})
    assert area.pinned_buffers() == {120: 1}


def test_a_checkpoint_read_for_a_gpu_is_mapped_and_let_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gpuflow.runtime import pytorch

    model, optimizer = network()
    step(model, optimizer)
    big = torch.nn.Linear(200, 200)
    with checkpointing(str(tmp_path)) as ckpt:
        saver = pytorch.Saver(ckpt, model=model, optimizer=optimizer, big=big)
        saver.save()
        ckpt.wait()
        path = ckpt.resume_from
        assert path is not None
        wanted = {name: value.clone() for name, value in big.state_dict().items()}
        kept = float(optimizer.state_dict()["state"][0]["exp_avg"].sum())
        monkeypatch.setattr(pytorch, "_has_gpu", lambda: True)
        held = pytorch.read(path)
        assert path in Path("/proc/self/maps").read_text(), "read whole, not mapped"
        del held
        step(model, optimizer)
        torch.nn.init.zeros_(big.weight)
        saver.restore()
        assert path not in Path("/proc/self/maps").read_text()
    assert float(optimizer.state_dict()["state"][0]["exp_avg"].sum()) == kept
    assert all(torch.equal(value, wanted[name]) for name, value in big.state_dict().items())


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.eye(3).to_sparse(),
        lambda: torch.randn(3, dtype=torch.complex64).conj(),
        lambda: torch.nn.Parameter(torch.randn(3), requires_grad=False),
        lambda: torch.randn(4, 4).t(),
        lambda: torch.empty(0, 3),
        lambda: torch.randn(8).to(torch.bfloat16)[2:5],
        lambda: torch.quantize_per_tensor(torch.randn(4), 0.1, 0, torch.qint8),
    ],
    ids=["sparse", "conjugate", "parameter", "transposed", "empty", "slice", "quantized"],
)
def test_tensors_of_every_kind_are_copied_as_they_are(tmp_path: Path, make: Any) -> None:
    value = make()
    copied = saved(tmp_path, part=Part(value=value))["part"]["value"]
    assert (type(copied), copied.dtype, copied.layout) == (type(value), value.dtype, value.layout)
    assert copied.requires_grad == value.requires_grad
    assert value.layout != torch.strided or copied.stride() == value.stride()
    as_plain = [one.to_dense() if one.layout != torch.strided else one for one in (copied, value)]
    assert torch.equal(*as_plain)


def test_a_part_added_later_is_a_sentence_and_can_be_left_fresh(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from gpuflow.runtime import pytorch

    saved(tmp_path, model=Part(a=1), schedule=Part(b=2))
    with checkpointing(str(tmp_path)) as ckpt:
        ema = Part(c=3)
        saver = pytorch.Saver(ckpt, model=Part(), ema=ema)
        with pytest.raises(KeyError, match=r"has no ema \(it has model, schedule\): restore\(optional=\['ema'\]\)"):
            saver.restore()
        saver.restore(optional=["ema"])
    assert ema.state == {"c": 3}
    said = capsys.readouterr().err
    assert 'holds "schedule", which this Saver was not given' in said
    assert 'has no "ema": it begins fresh' in said


def test_a_checkpoint_is_read_back_as_plain_data(tmp_path: Path) -> None:
    """Whoever can write to the store must not run code in the training."""
    numpy = pytest.importorskip("numpy")
    from gpuflow.runtime import pytorch

    class Evil:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "owned"),)

    given = {"rows": numpy.arange(3), "n": numpy.float64(2.5), "seen": {1, 2}, "hist": collections.Counter(a=1)}
    model, optimizer = network()
    step(model, optimizer)
    with checkpointing(str(tmp_path / "c")) as ckpt:
        saver = pytorch.Saver(ckpt, model=model, optimizer=optimizer, part=Part(**given))
        saver.save(step=1)
        ckpt.wait()
        again = Part()
        saver.parts["part"] = again
        assert saver.restore() == {"step": 1}
        assert (again.state["rows"] == given["rows"]).all()
        assert {**again.state, "rows": 0} == {**given, "rows": 0}
        path = ckpt.resume_from
        assert path is not None
        torch.save({"parts": {}, "facts": Evil(), "ranks": []}, path)
        with pytest.raises(TypeError, match=r"holds posix\.mkdir, which is not plain data; restore\(weights_only=Fal"):
            pytorch.read(path)
    assert not (tmp_path / "owned").exists()


def test_a_checkpoint_with_code_in_it_does_not_run_when_the_training_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a bucket writer would do it: the file that the next attempt is given is another one."""
    from gpuflow.runtime import pytorch

    class Evil:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "owned"),)

    path = tmp_path / "given"
    monkeypatch.setenv("GPUFLOW_RESUME_FROM", str(path))
    with checkpointing(str(tmp_path / "c")) as ckpt:
        saver = pytorch.Saver(ckpt, part=Part(a=1))
        for place in ("facts", "parts", "ranks"):
            evil = {"format": 2, "parts": {"part": {"a": 1}}, "facts": {}, "ranks": [{"generators": {}, "parts": {}}]}
            torch.save({**evil, place: Evil()}, path)
            with pytest.raises(TypeError, match="if you trust everyone who can write to the store, and what the Saver"):
                saver.restore()
            assert not (tmp_path / "owned").exists()
        with pytest.raises((TypeError, ValueError, KeyError, AttributeError)):
            saver.restore(weights_only=False)
        assert (tmp_path / "owned").exists()


def test_a_pytorch_in_which_plain_loading_can_be_broken_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from gpuflow.runtime import pytorch

    with checkpointing(str(tmp_path)) as ckpt:
        saver = pytorch.Saver(ckpt, part=Part(a=1))
        saver.save(step=1)
        ckpt.wait()
        saver.restore()
        assert "CVE" not in capsys.readouterr().err
        monkeypatch.setattr(torch, "__version__", "2.5.1+cu124")
        saver.restore()
        assert "PyTorch 2.5.1+cu124 can be made to run code" in capsys.readouterr().err


def test_a_state_that_is_not_plain_is_refused_at_the_first_save_not_at_the_first_resume(tmp_path: Path) -> None:
    from gpuflow.runtime import pytorch

    with checkpointing(str(tmp_path)) as ckpt:
        part = Part(point=Point(1, 2))
        for background in (True, False):
            with pytest.raises(TypeError, match=r"the state holds .*Point, which is not read back as plain data"):
                pytorch.Saver(ckpt, background=background, part=part).save()
        saver = pytorch.Saver(ckpt, weights_only=False, part=part)
        saver.save()
        ckpt.wait()
        part.state = {}
        saver.restore()
        assert part.state == {"point": Point(1, 2)}
        late = Part(value=1)
        plain = pytorch.Saver(ckpt, late=late)
        plain.save()
        late.state["value"] = Point(1, 2)
        with pytest.raises(TypeError, match="Point"):
            plain.save()


def test_what_cannot_be_saved_is_heard_at_the_call(tmp_path: Path) -> None:
    from gpuflow.runtime import pytorch

    with checkpointing(str(tmp_path)) as ckpt, pytest.raises((AttributeError, pickle.PicklingError, TypeError)):
        pytorch.Saver(ckpt, part=Part(call=lambda: 1)).save()


def test_a_checkpoint_of_the_version_before_is_resumed(tmp_path: Path) -> None:
    numpy = pytest.importorskip("numpy")
    from gpuflow.runtime import pytorch

    generators = {"python": random.getstate(), "torch": torch.get_rng_state(), "numpy": numpy.random.get_state()}
    wanted = (random.random(), float(torch.rand(1)), float(numpy.random.rand()))
    old = {"parts": {"part": {"a": 1}}, "facts": {"step": 4}, "generators": generators}
    part = Part()
    with checkpointing(str(tmp_path)) as ckpt:
        ckpt.save(lambda path: torch.save(old, path))
        assert pytorch.Saver(ckpt, part=part).restore() == {"step": 4}
    assert part.state == {"a": 1}
    assert (random.random(), float(torch.rand(1)), float(numpy.random.rand())) == wanted


def test_a_file_of_someone_else_or_of_a_later_version_is_a_sentence(tmp_path: Path) -> None:
    from gpuflow.runtime import pytorch

    with checkpointing(str(tmp_path)) as ckpt:
        path = ckpt.save(lambda path: torch.save({"weights": 1}, path))
        assert path is not None
        with pytest.raises(ValueError, match=r"was not saved by pytorch\.Saver"):
            pytorch.read(path)
        torch.save({"format": 99, "parts": {}, "facts": {}}, path)
        with pytest.raises(ValueError, match=r"by a newer gpuflow \(format 99\)"):
            pytorch.read(path)


@pytest.mark.parametrize(("before", "now"), [(8, 4), (4, 8), (2, 0)])
def test_generators_saved_on_more_or_fewer_gpus_are_restored_as_far_as_they_go_and_it_is_said(
    monkeypatch: pytest.MonkeyPatch, before: int, now: int
) -> None:
    from gpuflow.runtime.checkpoints import torch_state

    restored: dict[int, int] = {}

    def set_state(state: Any, device: int) -> None:
        assert device < now, "invalid device ordinal"
        restored[device] = int(state[0])

    monkeypatch.setattr(torch.cuda, "is_available", lambda: now > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: now)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "set_rng_state", set_state)
    states = [torch.tensor([index], dtype=torch.uint8) for index in range(before)]
    (remark,) = torch_state.restore_generators({**torch_state.capture_generators(), "cuda": states, "device": 0})
    assert restored == {index: index for index in range(min(before, now))}
    assert f"random states of {before} GPUs were saved and {now} are here" in remark


def test_the_state_of_the_gpu_a_rank_used_goes_to_the_gpu_it_uses_now(monkeypatch: pytest.MonkeyPatch) -> None:
    from gpuflow.runtime.checkpoints import torch_state

    restored: dict[int, int] = {}
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda state, device: restored.update({device: int(state[0])}))
    states = [torch.tensor([index], dtype=torch.uint8) for index in range(4)]
    assert torch_state.restore_generators({**torch_state.capture_generators(), "cuda": states, "device": 3}) == []
    assert restored[1] == 3


def test_a_loader_of_data_goes_on_in_the_middle_of_an_epoch(tmp_path: Path) -> None:
    torchdata: Any = pytest.importorskip("torchdata.stateful_dataloader", reason="torchdata is not installed here")
    from gpuflow.runtime import pytorch

    def loader() -> Any:
        torch.manual_seed(3)
        return torchdata.StatefulDataLoader(list(range(20)), batch_size=2, shuffle=True)

    whole = [batch.tolist() for batch in loader()]
    data = loader()
    with checkpointing(str(tmp_path)) as ckpt:
        saver = pytorch.Saver(ckpt, data=data)
        for index, _ in enumerate(data):
            if index == 3:
                saver.save()
                ckpt.wait()
                break
    fresh = loader()
    with checkpointing(str(tmp_path)) as ckpt:
        pytorch.Saver(ckpt, data=fresh).restore()
    assert [batch.tolist() for batch in fresh] == whole[4:]


def test_sharded_states_are_refused_with_a_sentence(tmp_path: Path) -> None:
    import torch.distributed as distributed
    from torch.distributed.tensor import DTensor, init_device_mesh  # type: ignore[attr-defined,unused-ignore]  # set for the test, or without stubs

    from gpuflow.runtime import pytorch

    file = f"file://{tmp_path / 'group'}"
    distributed.init_process_group("gloo", init_method=file, rank=0, world_size=1)
    try:
        whole = torch.nn.Linear(4, 4)
        split = DTensor.from_local(torch.ones(4), init_device_mesh("cpu", (1,)), run_check=False)
        sharded = torch.nn.Linear(4, 4)
        sharded.register_parameter("extra", torch.nn.Parameter(split))
        optimizer = torch.optim.SGD([sharded.extra])
        with checkpointing(str(tmp_path / "c")) as ckpt:
            for part in (sharded, optimizer):
                with pytest.raises(TypeError, match=r'"part" is sharded over the ranks \(DTensor\), and gpuflow saves'):
                    pytorch.Saver(ckpt, model=whole, part=part)
            with pytest.raises(TypeError, match=r'"the state" is sharded over the ranks \(DTensor\)'):
                pytorch.Saver(ckpt, part=Part(inside=[split])).save()
            model = torch.distributed.fsdp.FullyShardedDataParallel
            with pytest.raises(TypeError, match="FullyShardedDataParallel"):
                pytorch.Saver(ckpt, model=torch.nn.Sequential(model.__new__(model)))
    finally:
        distributed.destroy_process_group()


def test_a_copy_that_does_not_fit_the_memory_is_written_while_the_training_waits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from gpuflow.runtime import pytorch
    from gpuflow.runtime.base import container

    monkeypatch.setattr(Checkpointing, "save_in_background", lambda *facts, **others: pytest.fail("copied"))
    part = Part(value=torch.ones(1000))
    with checkpointing(str(tmp_path)) as ckpt:
        small = pytorch.Saver(ckpt, host_memory=3999, part=part)
        small.save()
        small.save()
        assert ckpt.resume_from is not None
        monkeypatch.setattr(container, "available_memory", lambda: 4500)
        pytorch.Saver(ckpt, part=part).save()
    said = capsys.readouterr().err
    assert said.count("of host memory and may take 0.0 GB: checkpoints are written while the training waits") == 2


def test_a_disk_that_is_full_is_told_as_such_and_does_not_end_the_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from gpuflow.runtime import pytorch

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    part = Part(value=torch.ones(1_000_000))
    with checkpointing(str(tmp_path), every=0) as ckpt:
        saver = pytorch.Saver(ckpt, part=part)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, before[1]))
        try:
            assert ckpt.due()
            saver.save()
            ckpt.wait()
            assert not ckpt.due(), "tried again only after a pause"
            with pytest.raises(OSError, match="File too large"):
                # Not asked for: perhaps the result of it all.
                pytorch.Saver(ckpt, part=part, background=False).save()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        ckpt._not_before = 0.0
        assert ckpt.due()
        saver.save()
        ckpt.wait()
        assert ckpt.resume_from is not None
    assert (
        "could not be written: [Errno 27] File too large; the program goes on, the next try" in capsys.readouterr().err
    )
    assert sorted(name for name in os.listdir(tmp_path) if name != ".gpuflow") == ["checkpoint-00000001"]
