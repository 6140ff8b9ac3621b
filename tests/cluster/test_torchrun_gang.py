"""A real `torchrun` over four pods on Argo, without options, its state sharded (FSDP): disturbed, the same bit for bit.

    TORCHRUN_KILLS=6 TORCHRUN_SEED=2 pytest tests/cluster/test_torchrun_gang.py -m cluster

The pods have no image with PyTorch: they mount the packages of `.venvs/frameworks` (or `$FRAMEWORKS_VENV`) from the
node, which is this machine.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from ..runtime.harness import free_port
from .cluster import Cluster
from .faults import Faults
from .fixtures import AnyCluster
from .kube import Kube
from .test_argo import ended
from .test_argo_gangs import ROOT, Ground
from .waiting import until

pytestmark = pytest.mark.cluster

KILLS, SEED = int(os.environ.get("TORCHRUN_KILLS", "3")), os.environ.get("TORCHRUN_SEED", "1")
STEPS = 100 + 200 * KILLS
"""More than the attempts that are killed can do."""
HOME = Path(os.environ.get("FRAMEWORKS_VENV", ROOT / ".venvs" / "frameworks"))
WAYS = ("evict", "delete", "force delete", "program", "container")
LIBRARIES = Path("/usr/lib/x86_64-linux-gnu")
WAITS = 0.15
"""Seconds of a step: long enough for several checkpoints to come and go before it ends."""


def packages() -> Path:
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    found = HOME / "lib" / version / "site-packages"
    if not (found / "torch").is_dir():
        pytest.skip(f"PyTorch is not in {found} (make .venvs/frameworks/.ready)")
    return found


class Training(Ground):
    """A gang that trains, and the volumes that it mounts."""

    def __init__(self, kube: Kube, folder: Path, shared: Path) -> None:
        super().__init__(kube, folder)
        self.shared = shared

    def claims(self) -> None:
        """What the pods read and write, as claims on folders of the node."""
        places = {
            "torch": packages(),
            "libraries": LIBRARIES,
            "code": ROOT / "tests" / "runtime",
            "shared": self.shared,
        }
        kind: dict[str, Any] = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
        size = {"storage": "1Gi"}
        for name, place in places.items():
            own = f"{name}-{uuid.uuid4().hex[:8]}"
            volume = {**kind, "capacity": size, "hostPath": {"path": str(place)}}
            claim = {**kind, "resources": {"requests": size}, "volumeName": own}
            self.kube.create(
                {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": own}, "spec": volume},
                {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": claim},
            )

    def train(self, run: str) -> None:
        """Compile the pipeline and start a run of it."""
        volumes = {"/torch": {"claim": "torch", "read_only": True}, "/code": {"claim": "code", "read_only": True}}
        volumes |= {"/libraries": {"claim": "libraries", "read_only": True}, "/shared": {"claim": "shared"}}
        step = {
            "image": "gpuflow.test/gpuflow:1",
            "image_pull_policy": "IfNotPresent",
            "cpu": "250m",
            "memory": "1500Mi",
            "gang": {"workers": 4, "rendezvous": {"framework": "torchrun"}},
            # Nothing but the script and its own words: ranks, sizes and addresses come from the variables.
            "command": ["python3", "-m", "torch.distributed.run", "/code/shard_training.py", "/tmp"],
            "args": [f"steps={STEPS}", "every=5", f"pause={WAITS}", "hurry=/shared/hurry"],
            "env": {"PYTHONPATH": "/torch", "LD_LIBRARY_PATH": "/libraries", "OMP_NUM_THREADS": "1"},
            "volumes": volumes,
            "checkpoint": {"path": "/ckpt", "store": "/shared/store", "every": "1s", "grace": "20s", "sharded": True},
            "retry": {"failures": 50, "interruptions": 50, "backoff": {"start": "1s"}},
            "outputs": {"digest": "string"},
        }
        pipeline = {"apiVersion": "gpuflow/v1", "kind": "Pipeline", "name": "sharded", "steps": {"train": step}}
        (self.folder / "p.yaml").write_text(yaml.safe_dump(pipeline))
        words = ("compile", "p.yaml", "--target", "argo", "--site", "site.yaml", "--namespace", self.kube.namespace)
        self.kube.apply(yaml.safe_load(self.gpuflow(*words)))
        meta = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "metadata": {"name": run}}
        self.kube.create({**meta, "spec": {"workflowTemplateRef": {"name": "sharded"}}})

    def finish(self, run: str) -> str:
        """The digest that a run ends with: of all weights and the optimizer's state."""
        assert ended(self.kube, run, 900)["status"]["phase"] == "Succeeded", self.said()
        markers = [json.loads(path.read_text()) for path in (self.shared / "store").rglob("success*.json")]
        digests = [marker["outputs"]["digest"]["value"] for marker in sorted(markers, key=lambda each: each["time"])]
        return str(digests[-1])

    def manifests(self) -> list[Path]:
        return sorted((self.shared / "store").glob("*/*/*/checkpoints/*/manifest.json"))

    def newest(self) -> str:
        """The newest checkpoint; its name begins with the number of its attempt."""
        return max((path.parent.name for path in self.manifests()), default="")

    def said(self) -> str:
        pods = [pod["metadata"]["name"] for pod in self.kube.list("pod")]
        return "\n".join(f"{name}: {self._log(name)[-1500:]}" for name in pods)

    def _log(self, pod: str) -> str:
        try:
            return self.kube("logs", pod, "--container=main")
        except Exception as refusal:
            return str(refusal)


@pytest.fixture
def training(
    private_cluster: Cluster, argo: AnyCluster, jobset: AnyCluster, namespace: Kube, tmp_path: Path
) -> Iterator[Training]:
    packages()
    private_cluster.image("gpuflow")
    with tempfile.TemporaryDirectory(prefix="torchrun", dir=private_cluster.layout.run) as folder:
        shared = Path(folder)
        (shared / "store").mkdir()
        for path in (shared, shared / "store"):
            path.chmod(0o777)
        made = Training(namespace, tmp_path, shared)
        made.claims()
        yield made


def programs(pod: str) -> list[int]:
    """The processes of a pod that train, as this machine numbers them."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                words = (entry / "cmdline").read_bytes()
                if b"shard_training" in words and f"HOSTNAME={pod}".encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
    return found


def everything(pod: str) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if f"HOSTNAME={pod}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
    return found


def disturb(way: str, pod: str, host: str, faults: Faults) -> None:
    if way == "evict":
        faults.evict(pod)
    elif way == "delete":
        faults.delete(pod)
    elif way == "force delete":
        faults.force_delete(pod)
    else:
        for number in programs(host) if way == "program" else everything(host):
            with contextlib.suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)


def start_alone(folder: Path) -> list[subprocess.Popen[bytes]]:
    """The same training as four plain processes: no pods, no torchrun, no supervisor, nobody disturbs it."""
    port, found = str(free_port()), []
    for rank in range(4):
        environ = {**os.environ, "RANK": str(rank), "WORLD_SIZE": "4", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        environ |= {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        command = [HOME / "bin" / "python", ROOT / "tests" / "runtime" / "shard_training.py", folder, f"steps={STEPS}"]
        found.append(subprocess.Popen([*command, "every=1000000"], env=environ))
    return found


def undisturbed(processes: list[subprocess.Popen[bytes]], folder: Path) -> str:
    assert [process.wait(600) for process in processes] == [0] * 4
    return str(json.loads((folder / "rank-0.json").read_text())["digest"])


def test_torchrun_over_four_pods_killed_at_random_ends_bit_for_bit_as_undisturbed(
    training: Training, faults: Faults, tmp_path: Path
) -> None:
    chance = random.Random(SEED)
    alone = start_alone(tmp_path)
    training.train("disturbed")
    killed: list[str] = []
    for attempt in range(1, KILLS + 1):
        # Once it works and has kept something new, at any moment.
        before = training.newest()

        def works(attempt: int = attempt, before: str = before) -> bool:
            return len(training.ranks(attempt)) == 4 and training.newest() > before

        until(f"attempt {attempt} keeps a checkpoint", works, timeout=420)
        time.sleep(2 * chance.random())
        rank, way = chance.randrange(4), chance.choice(WAYS)
        pod = training.ranks(attempt)[rank]
        spec = training.kube.get("pod", pod)
        assert spec is not None
        disturb(way, pod, spec["spec"].get("hostname", pod), faults)
        killed.append(f"{way} of rank {rank}")
        until("the next attempt", lambda attempt=attempt: len(training.attempts()) > attempt, timeout=420)
    (training.shared / "hurry").touch()
    digest = training.finish("disturbed")
    attempt, failures, interruptions = map(int, training.counts())
    print(f"{killed}: {attempt} attempts, {failures} failures, {interruptions} interruptions")
    assert attempt == KILLS + 1
    for path in training.manifests():
        manifest = json.loads(path.read_text())
        assert manifest["shards"] == 4
        assert {f"__{rank}_0.distcp" for rank in range(4)} <= {file["path"] for file in manifest["files"]}
    assert undisturbed(alone, tmp_path) == digest
