"""What this machine has, and how it is given out to steps. Tests gpuflow/local/gpus.py, and gpuflow/local/machine.py.

No GPU is needed: a script that stands for nvidia-smi prints what NVIDIA's documentation shows for its queries.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpuflow import Step, gpu, mig
from gpuflow.local.gpus import Gpu, ask
from gpuflow.local.machine import SHARES, Machine, Room, Wanted, cpu_limits, memory_limits, this_machine, wanted_of
from gpuflow.quantity import Quantity

A100 = "0, GPU-5a1f, NVIDIA A100-SXM4-80GB, 81920, Disabled"
H200 = "1, GPU-77c2, NVIDIA H200, 143771, Disabled"
CUT = "2, GPU-9e30, NVIDIA A100-SXM4-40GB, 40960, Enabled"
GTX = "3, GPU-b0b0, NVIDIA GeForce GTX 1080, 8192, [N/A]"
LISTED = """\
GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-5a1f)
GPU 2: NVIDIA A100-SXM4-40GB (UUID: GPU-9e30)
  MIG 3g.20gb     Device  0: (UUID: MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f)
  MIG 1g.5gb+me   Device  1: (UUID: MIG-cba663e8-9bed-5b25-b243-5985ef7c9beb)
  MIG 1c.3g.20gb  Device  2: (UUID: MIG-1e26a0f3-0000-5b25-b243-5985ef7c9beb)
"""


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Puts an nvidia-smi in front that answers its queries so; `script` is run first."""

    def put(*rows: str, listed: str = LISTED, apps: str = "", script: str = "") -> None:
        folder = tmp_path / "bin"
        folder.mkdir()
        for name, text in {"gpus": "\n".join(rows), "listed": listed, "apps": apps}.items():
            (folder / name).write_text(text + "\n")
        program = folder / "nvidia-smi"
        program.write_text(
            f"#!/bin/sh\n{script}\ncd {folder}\n"
            'case "$1" in --query-gpu=index,uuid,name,memory.total,mig.mode.current) cat gpus ;; -L) cat listed ;;\n'
            '--query-compute-apps=*) cat apps ;; *) echo "Invalid argument $1"; exit 2 ;; esac\n'
        )
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return put


def room(*gpus: Gpu, cpu: str = "8", memory: str = "32Gi", jobs: int | None = None, pretend: bool = False) -> Room:
    return Room(Machine(Quantity(cpu), Quantity(memory), gpus), jobs, pretend)


def a100(number: int, *users: str) -> Gpu:
    return Gpu(f"GPU-{number}", number, "NVIDIA-A100-SXM4-80GB", Quantity("81920Mi"), ("a100-80gb",), users=users)


def l4(number: int) -> Gpu:
    return Gpu(f"GPU-{number}", number, "NVIDIA-L4", Quantity("23034Mi"), ("l4-24gb",))


def step(**fields: Any) -> Step:
    return Step("s", image="i", command=["x"], **fields)


def test_no_more_cpus_than_this_process_may_run_on() -> None:
    program = "from gpuflow.local.machine import this_machine; print(this_machine().cpu)"
    pinned = f"import os; os.sched_setaffinity(0, {{min(os.sched_getaffinity(0))}}); {program}"
    done = subprocess.run([sys.executable, "-c", pinned], capture_output=True, text=True, check=True)
    assert Quantity(done.stdout.strip()) <= Quantity("1")


def test_this_machine_has_something_to_give() -> None:
    here = this_machine({})
    assert Quantity("0") < here.cpu <= Quantity(os.cpu_count() or 1)
    assert Quantity("64Mi") < here.memory <= Quantity(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))


@pytest.mark.parametrize(
    ("own", "files", "cpu", "memory"),
    [
        pytest.param("0::/\n", {"cpu.max": "150000 100000", "memory.max": "2147483648"}, "1500m", "2Gi", id="v2"),
        pytest.param("0::/\n", {"cpu.max": "max 100000", "memory.max": "max"}, None, None, id="v2 without limits"),
        pytest.param(
            "0::/user.slice/run.scope\n",
            {"user.slice/cpu.max": "200000 100000", "user.slice/run.scope/cpu.max": "max 100000"},
            "2",
            None,
            id="v2: the group around it has the limit",
        ),
        pytest.param(
            "5:cpu,cpuacct:/docker/abc\n4:memory:/docker/abc\n",
            {
                "cpu/cpu.cfs_quota_us": "50000",
                "cpu/cpu.cfs_period_us": "100000",
                "memory/memory.limit_in_bytes": "1073741824",
            },
            "500m",
            "1Gi",
            id="v1 in a container that sees the machine's path",
        ),
        pytest.param(
            "5:cpu:/\n4:memory:/a/b\n",
            {
                "cpu/cpu.cfs_quota_us": "-1",
                "cpu/cpu.cfs_period_us": "100000",
                "memory/memory.limit_in_bytes": "9223372036854771712",
                "memory/a/memory.limit_in_bytes": "536870912",
                "memory/a/b/memory.limit_in_bytes": "9223372036854771712",
            },
            None,
            "512Mi",
            id="v1: the lowest limit on the way counts",
        ),
        pytest.param("0::/../other\n", {"cpu.max": "100000 100000"}, "1", None, id="outside of what is seen"),
    ],
)
def test_limits_of_cgroups(
    tmp_path: Path, own: str, files: dict[str, str], cpu: str | None, memory: str | None
) -> None:
    (tmp_path / "own").write_text(own)
    for name, text in files.items():
        (tmp_path / "groups" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "groups" / name).write_text(text + "\n")
    found = min(cpu_limits(tmp_path / "groups", tmp_path / "own"), default=None)
    assert found == (None if cpu is None else Quantity(cpu))
    lowest = min(memory_limits(tmp_path / "groups", tmp_path / "own"), default=None)
    assert lowest == (None if memory is None else Quantity(memory))


def test_a_name_too_long_for_a_label_is_a_gpu_that_the_catalog_does_not_know(smi) -> None:
    smi(f"0, GPU-1, NVIDIA {'X' * 80}, [N/A], [N/A]")
    (found,) = this_machine().gpus
    assert found.models == () and found.product.startswith("NVIDIA-XXX") and not found.has(Quantity("1Gi"))


def test_gpus_are_matched_to_models_and_slices_to_profiles(smi) -> None:
    smi(A100, H200, CUT, GTX)
    found = this_machine().gpus
    assert [each.name for each in found] == [
        "a100-80gb",
        "h200-141gb",
        "3g.20gb of a100-40gb",
        "1g.5gb+me of a100-40gb",
        "1c.3g.20gb of a100-40gb",
        "NVIDIA-GeForce-GTX-1080, which the catalog does not know",
    ]
    assert found[2].uuid == "MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f" and found[2].card == "GPU-9e30"


@pytest.mark.parametrize(
    ("listed", "profiles"),
    [
        pytest.param("GPU 2: NVIDIA A100-SXM4-40GB (UUID: GPU-9e30)\n", [], id="no slices"),
        pytest.param(
            "GPU 2: A100-SXM4-40GB (UUID: GPU-9e30)\n  MIG 1g.5gb Device 0: (UUID: MIG-GPU-9e30/7/0)\n",
            ["1g.5gb"],
            id="a driver before 470",
        ),
    ],
)
def test_a_gpu_that_is_cut_is_never_given_out_whole(smi, listed: str, profiles: list[str]) -> None:
    smi(CUT, listed=listed)
    here = this_machine()
    assert [each.profile for each in here.gpus] == profiles
    assert any("has no slices" in text for text in here.told) != bool(profiles)
    assert Room(here).missing(Wanted(gpus=1)) is not None


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (
            "echo 'NVIDIA-SMI has failed because it could not communicate with the driver.'; exit 9",
            "has failed because",
        ),
        ("echo 'No devices were found'; exit 0", "No devices were found"),
        ("echo 'Unable to determine the device handle: GPU is lost.' >&2; exit 15", "GPU is lost"),
        ("exit 3", "exit code 3"),
    ],
)
def test_a_broken_nvidia_smi_is_told_and_means_no_gpus(smi, script: str, said: str) -> None:
    smi(script=script)
    here = this_machine()
    assert here.gpus == () and len(here.told) == 1 and said in here.told[0]
    assert "no GPU" in (Room(here).missing(Wanted(gpus=1)) or "")


def test_a_hanging_nvidia_smi_is_not_waited_for(smi, monkeypatch: pytest.MonkeyPatch) -> None:
    smi(script="sleep 300 & trap '' TERM; wait; sleep 300")
    monkeypatch.setattr("gpuflow.local.gpus.SMI_PATIENCE", 0.3)
    assert "did not answer" in this_machine().told[0]


def test_what_cannot_be_started_is_an_answer(tmp_path: Path) -> None:
    (tmp_path / "program").write_text("no program")
    (tmp_path / "program").chmod(0o755)
    for name in ("program", "none"):
        answer = ask([str(tmp_path / name)])
        assert answer is not None and answer.code == 126 and name in answer.reason


def test_programs_of_others_are_told_and_their_gpus_come_last(smi) -> None:
    smi(A100, A100.replace("0, GPU-5a1f", "1, GPU-5a20"), apps="GPU-5a1f, 4711, /opt/conda/bin/python3.11")
    here = this_machine()
    assert any("GPU 0 (GPU-5a1f) is in use by python3.11 (4711" in text for text in here.told)
    given = Room(here)
    first, second = given.take(Wanted(gpus=1)), given.take(Wanted(gpus=1))
    assert first is not None and first.gpus[0].uuid == "GPU-5a20"
    assert second is not None and second.gpus[0].uuid == "GPU-5a1f"


@pytest.mark.parametrize(
    ("setting", "uuids"),
    [
        ("1", ["GPU-77c2"]),
        ("1,0", ["GPU-77c2", "GPU-5a1f"]),
        ("0,9,1", ["GPU-5a1f"]),
        ("GPU-77", ["GPU-77c2"]),
        ("GPU-", []),
        ("", []),
        ("-1", []),
        ("NoDevFiles", []),
        ("1,1", ["GPU-77c2"]),
        ("2", ["MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f"]),
        ("MIG-cba6", ["MIG-cba663e8-9bed-5b25-b243-5985ef7c9beb"]),
    ],
)
def test_the_users_own_choice_of_gpus_holds(smi, setting: str, uuids: list[str]) -> None:
    smi(A100, H200, CUT)
    here = this_machine({"CUDA_VISIBLE_DEVICES": setting})
    assert [each.uuid for each in here.gpus] == uuids
    assert any(f"{len(uuids)} of 5 GPUs and slices" in text for text in here.told)


@pytest.mark.parametrize(
    ("asked", "uuids"),
    [
        (step(gpu=gpu("a100-80gb")), ["GPU-5a1f"]),
        (step(gpu=gpu("a100-80gb", form="sxm")), ["GPU-5a1f"]),
        (step(gpu=gpu("a100-80gb", form="pcie")), None),
        (step(gpu="h100-80gb"), None),
        (step(gpu={"any_of": ["h100", "h200"]}), ["GPU-77c2"]),
        (step(gpu={"memory": "100Gi"}), ["GPU-77c2"]),
        (step(gpu={"memory": "140Gi"}), None),
        (step(gpu={"memory": "5Gi", "count": 3}), ["GPU-5a1f", "GPU-77c2", "GPU-b0b0"]),
        (step(gpu=1), ["GPU-5a1f"]),
        (step(gpu=4), None),
        (step(mig=mig("3g.20gb", "a100-40gb")), ["MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f"]),
        (step(mig=mig("1g.5gb+me", "a100-40gb")), ["MIG-cba663e8-9bed-5b25-b243-5985ef7c9beb"]),
        (step(mig=mig("3g.40gb", "a100-80gb")), None),
        (step(mig=mig("1g.5gb", "a100-40gb")), None),
        (step(shared_gpu="h200"), ["GPU-77c2"]),
        (step(shared_gpu="l4"), None),
        (step(), []),
    ],
)
def test_a_step_gets_what_it_names_and_nothing_else(smi, asked: Step, uuids: list[str] | None) -> None:
    smi(A100, H200, CUT, GTX)
    given, wanted = Room(this_machine()), wanted_of(asked)
    assert (given.missing(wanted) is None) == (uuids is not None)
    if uuids is None:
        with pytest.raises(ValueError, match="it asks for"):
            given.take(wanted)
        return
    share = given.take(wanted)
    assert share is not None
    listed = ",".join(uuids)
    assert share.environment() == {"CUDA_VISIBLE_DEVICES": listed, "NVIDIA_VISIBLE_DEVICES": listed or "void"}


def test_what_is_never_there_is_one_sentence_with_both_sides() -> None:
    asked = step(
        cpu=16,
        memory={"limit": "64Gi"},
        gpu="a100-80gb x 2",
        kubernetes={"resources": {"rdma/hca": 1}},
    )
    assert room(a100(0), l4(1)).missing(wanted_of(asked)) == (
        "it asks for 16 CPU, 64Gi of memory, 2 x a100-80gb, rdma/hca 1, and this machine has "
        "8 CPU, 32.0Gi of memory, 1 x a100-80gb, 1 x l4-24gb, no rdma/hca"
    )
    claim = step(device_claim={"template": "gpu"})
    assert room().missing(wanted_of(claim)) == (
        "it asks for ResourceClaim of a cluster, and this machine has no ResourceClaim"
    )


def test_steps_wait_for_what_others_have() -> None:
    given = room(a100(0), cpu="4", memory="8Gi")
    first = given.take(Wanted(Quantity("3"), Quantity("6Gi"), 1))
    assert first is not None
    assert given.take(Wanted(Quantity("2"))) is None
    assert given.take(Wanted(Quantity("1"), Quantity("4Gi"))) is None
    assert given.take(Wanted(Quantity("1"), Quantity("1Gi"), 1)) is None
    assert given.take(Wanted()) is not None  # it asks for nothing and takes one CPU
    assert given.take(Wanted()) is None
    given.give_back(first)
    given.give_back(first)
    again = given.take(Wanted(Quantity("3"), Quantity("8Gi"), 1))
    assert again is not None and [each.uuid for each in again.gpus] == ["GPU-0"]
    assert given.take(Wanted(Quantity("100m"))) is None


def test_jobs_bound_the_steps_at_the_same_time() -> None:
    tiny = Wanted(Quantity("1m"))
    given = room(jobs=2)
    shares = [given.take(tiny), given.take(tiny)]
    assert None not in shares and given.take(tiny) is None
    unsaid = room(cpu="2")
    assert sum(unsaid.take(tiny) is not None for _ in range(100)) == 8


def test_gpus_of_one_product_go_together() -> None:
    given = room(l4(0), a100(1), l4(2))
    two = given.take(Wanted(gpus=2))
    assert two is not None and [each.uuid for each in two.gpus] == ["GPU-0", "GPU-2"]
    assert given.take(Wanted(gpus=2)) is None  # it waits for the two of one product
    assert given.remarks(Wanted(gpus=2)) == []
    mixed = room(l4(0), a100(1))
    both = mixed.take(Wanted(gpus=2))
    assert both is not None and len(both.gpus) == 2
    assert "of several products" in mixed.remarks(Wanted(gpus=2))[0]


def test_shares_are_on_one_gpu_beside_no_step_that_has_it_whole() -> None:
    given, share = room(a100(0), a100(1), cpu="32"), Wanted(gpus=1, shared=True)
    whole = given.take(Wanted(gpus=1))
    assert whole is not None and whole.gpus[0].index == 0
    shares = [given.take(share) for _ in range(SHARES)]
    assert {each.gpus[0].uuid for each in shares if each is not None} == {"GPU-1"} and None not in shares
    assert given.take(share) is None and given.take(Wanted(gpus=1)) is None
    given.give_back(whole)
    assert given.take(Wanted(gpus=3, shared=True)) is not None  # several shares may be on one card
    assert given.take(Wanted(gpus=1)) is None
    assert "their memory is not apart" in given.remarks(share)[0]


def test_pretended_gpus_run_anyway_and_are_named_to_nobody() -> None:
    given = room(l4(0), cpu="2", memory="1Gi", pretend=True)
    wish = Wanted(Quantity("96"), Quantity("1Ti"), 8, "h200-141gb")
    assert given.missing(wish) is None
    assert given.remarks(wish) == [
        "it asks for 96 CPU, 1Ti of memory, 8 x h200-141gb, and this machine has 2 CPU, 1.0Gi of memory, 1 x l4-24gb: "
        "it runs anyway, with what there is"
    ]
    share = given.take(wish)
    assert share is not None and share.environment() == {}
    assert given.take(Wanted()) is None  # it has the whole machine
    given.give_back(share)
    real = given.take(Wanted(gpus=1, model="l4-24gb"))
    assert real is not None and real.environment()["CUDA_VISIBLE_DEVICES"] == "GPU-0"


def test_a_program_sees_what_its_share_names() -> None:
    share = room(a100(0), a100(1)).take(Wanted(gpus=2))
    assert share is not None
    program = "import json, os; print(json.dumps({k: v for k, v in os.environ.items() if k.endswith('_DEVICES')}))"
    environment = {**os.environ, **share.environment()}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, check=True)
    assert json.loads(done.stdout)["CUDA_VISIBLE_DEVICES"] == "GPU-0,GPU-1"
