"""Steps in their images, through a real podman where there is one: images of this machine, the supervisor mounted."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuflow import Pipeline, Site, Step
from gpuflow.core.errors import EnvironmentFailure
from gpuflow.local import containers
from gpuflow.local.containers import SUPERVISOR, ContainerEngine, container_name, find_engine, write_supervisor
from gpuflow.local.gpus import Gpu
from gpuflow.local.machine import Machine, Room, Wanted
from gpuflow.local.paths import paths_of
from gpuflow.plan import planned_step
from gpuflow.quantity import Quantity
from gpuflow.runtime.bundle import wrap
from tests.local.images import image_tar, podman_environments

IMAGE, BARE = "localhost/gpuflow-test:python", "localhost/gpuflow-test:bare"
PODMAN = ContainerEngine("podman", "podman")
DOCKER = ContainerEngine("docker", "docker")


def step(**fields: Any) -> Step:
    return Step("s", image=IMAGE, command=["x"], **fields)


@pytest.fixture(scope="session")
def podman_variables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The variables with which podman runs a container here; skips where it does not."""
    if shutil.which("podman") is None:
        pytest.skip("podman is not installed")
    reason = ""
    # Processes of pytest-xdist share one folder, in which the first of them makes the images.
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "podman"
    folder.mkdir(exist_ok=True)
    environments = podman_environments(folder)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for image, with_python in ((IMAGE, True), (BARE, False)) if not (folder / "made").exists() else ():
            words, environment = ["podman", "import", "-", image], {**os.environ, **environments[0]}
            subprocess.run(words, input=image_tar(with_python), capture_output=True, env=environment)
        (folder / "made").touch()
    for variables in environments:
        environment = {**os.environ, **variables}
        words = ["podman", "run", "--rm", IMAGE, "python3", "-c", "print('it runs')"]
        done = subprocess.run(words, capture_output=True, text=True, env=environment)
        if "it runs" in done.stdout:
            return variables
        reason = done.stderr.strip()
    pytest.skip(f"podman runs no container here: {reason}")


@pytest.fixture
def podman(podman_variables: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> ContainerEngine:
    for name, value in podman_variables.items():
        monkeypatch.setenv(name, value)
    return find_engine("podman")


class Started:
    """A step in a container, as a run starts it."""

    def __init__(self, engine: ContainerEngine, folder: Path) -> None:
        self.engine, self.folder = engine, folder
        self.name = container_name(folder.name, "s")
        self.mounts = write_supervisor(folder / "supervisor")

    def __call__(
        self, program: str, *, image: str = IMAGE, env: dict[str, str] | None = None, grace: int = 10, **more: Any
    ) -> subprocess.Popen[str]:
        """Runs a shell script under the supervisor; /data is the folder `data`."""
        (self.folder / "data").mkdir(exist_ok=True)
        (self.folder / "state").mkdir(exist_ok=True)
        options = {"pipeline": "p", "step": "s", "run-id": "r", "checkpoint-dir": "/data/ckpt", "store": "/state"}
        words = ["sh", "-c", program]
        command = wrap(words, {**options, "grace": f"{grace}s"}, delivery="config-map", mount=SUPERVISOR)
        mounts = {**self.mounts, "/data": self.folder / "data", "/state": self.folder / "state"}
        environment = env or {}
        argv = self.engine.words(image, command, environment, mounts, None, self.name, grace=grace, **more)
        return subprocess.Popen(
            argv,
            env=self.engine.client_environment(environment, None),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def file(self, name: str) -> Path:
        """A file in the folder `data`, once it is there."""
        path = self.folder / "data" / name
        end = time.monotonic() + 60
        while not path.exists():
            assert time.monotonic() < end, f"no {name} after a minute"
            time.sleep(0.05)
        return path


@pytest.fixture
def started(podman: ContainerEngine, tmp_path: Path) -> Iterator[Started]:
    run = Started(podman, tmp_path)
    yield run
    podman.end(run.name, 0)


@pytest.mark.slow
def test_a_step_runs_in_its_image_under_the_mounted_supervisor(started: Started) -> None:
    secret = "two lines\nand 'quotes' \"of both kinds\" = $HOME \\"
    program = """
        printf %s "$SECRET" >/data/secret; printf %s "$PATH" >/data/path; pwd >/data/pwd; echo to stdout
        cat /proc/1/cmdline >/data/first; printf %s "$CUDA_VISIBLE_DEVICES|$NVIDIA_VISIBLE_DEVICES" >/data/gpus
    """
    env = {"SECRET": secret, "PATH": "/own/bin:/usr/bin:/bin"}
    running = started(program, env=env, step=step(working_dir="/tmp", memory="64Mi", shm="8Mi"))
    assert secret not in " ".join(running.args) and "two lines" not in str(running.args)
    out, errors = running.communicate(timeout=120)
    assert running.returncode == 0, errors
    data = started.folder / "data"
    assert (data / "secret").read_text() == secret and (data / "path").read_text() == env["PATH"]
    assert (data / "pwd").read_text() == "/tmp\n" and out == "to stdout\n"
    assert "gpuflow-run" in (data / "first").read_text()
    assert (data / "gpus").read_text() == "|void"
    assert (data / "secret").stat().st_uid == os.getuid()


@pytest.mark.slow
def test_a_step_finds_its_own_paths_in_its_container(started: Started) -> None:
    fields = {
        "image": IMAGE,
        "command": ["x"],
        "volumes": {"/claim": {"claim": "c"}, "/claim/scratch": {"empty_dir": "1Gi"}, "/data": {"claim": "data"}},
        "inputs": {"/in/set": {"claim": "c", "path": "set"}, "/in/none": {"claim": "c", "path": "none"}},
        "outputs": {
            "loss": {"type": "float", "path": "/tmp/loss"},
            "model": {"type": "file", "path": "/res/m", "uri": "/data/m"},
        },
        "working_dir": "/tmp",
    }
    planned = planned_step(Pipeline("p", steps={"s": fields}), "s", Site.load())
    paths = paths_of(planned, started.folder / "own", started.folder / "shared")
    paths.make()
    (started.folder / "shared/claims/c/set").write_text("given")
    started.mounts |= paths.mounts
    running = started(
        """
        set -e; cat /in/set >/claim/copy; echo 1 >/claim/scratch/file; echo 2 >/res/m; echo 3 >/tmp/loss
        (echo x >/in/set) 2>/dev/null || echo refused >/data/in; test ! -e /in/none; pwd >/data/pwd
        """,
        step=planned.step,
        read_only=paths.read_only,
    )
    assert running.wait(120) == 0, running.communicate()[1]
    assert (started.folder / "shared/claims/c/copy").read_text() == "given"
    assert (started.folder / "own/root/claim/scratch/file").read_text() == "1\n"
    assert (started.folder / "own/root/res/m").read_text() == "2\n"
    assert (started.folder / "data/in").read_text() == "refused\n" and (
        started.folder / "data/pwd"
    ).read_text() == "/tmp\n"


@pytest.mark.slow
def test_limits_and_read_only_places_hold(started: Started) -> None:
    program = """
        cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory/memory.limit_in_bytes >/data/memory 2>/dev/null
        (echo x >/ro/file) 2>/dev/null || echo refused >/data/ro
        (echo x >/file) 2>/dev/null || echo refused >/data/root
    """
    (started.folder / "ro").mkdir()
    started.mounts["/ro"] = started.folder / "ro"
    limited = step(memory="256Mi", cpu="500m", security={"read_only_root": True})
    running = started(program, step=limited, read_only={"/ro"})
    assert running.wait(120) == 0, running.communicate()[1]
    data = started.folder / "data"
    assert (data / "ro").read_text() == (data / "root").read_text() == "refused\n"
    assert list((started.folder / "ro").iterdir()) == []
    if "memory" in started.engine.controllers:
        assert str(256 * 2**20) in (data / "memory").read_text()


STOPS = """
    save() { mkdir /data/ckpt/.part && echo state >/data/ckpt/.part/state && mv /data/ckpt/.part /data/ckpt/step-1; }
    trap 'save; echo stopped >/data/stopped; exit 143' TERM
    echo >/data/begun
    while :; do sleep 0.1; done
"""


@pytest.mark.slow
def test_sigterm_to_the_client_is_an_interruption(started: Started) -> None:
    running = started(STOPS)
    started.file("begun")
    running.send_signal(signal.SIGTERM)
    assert running.wait(120) == 75, running.communicate()[1]
    assert (started.folder / "data" / "stopped").exists()
    kept = [file for file in (started.folder / "state").rglob("state") if file.is_file()]
    assert [file.read_text() for file in kept] == ["state\n"]


@pytest.mark.slow
def test_a_container_whose_client_was_killed_is_ended_by_its_name(started: Started) -> None:
    running = started(STOPS)
    started.file("begun")
    running.kill()
    running.communicate()
    assert not (started.folder / "data" / "stopped").exists()
    assert started.engine.end(started.name) is True
    assert (started.folder / "data" / "stopped").exists()
    assert started.engine.end(started.name) is False


@pytest.mark.slow
def test_what_ignores_sigterm_is_killed_after_its_grace(started: Started) -> None:
    running = started("trap '' TERM; echo >/data/begun; while :; do sleep 0.1; done", grace=1)
    started.file("begun")
    assert started.engine.end(started.name, 1) is True
    assert running.wait(120) != 0
    assert started.engine.end(started.name) is False


@pytest.mark.slow
def test_an_image_without_python_ends_the_step_with_a_sentence(started: Started) -> None:
    running = started("echo never", image=BARE)
    _, errors = running.communicate(timeout=120)
    assert running.returncode == 79 and "this image has no python3" in errors


@pytest.mark.slow
def test_images_that_are_not_there_are_one_message(podman: ContainerEngine) -> None:
    podman.require_images([IMAGE, BARE])
    with pytest.raises(EnvironmentFailure) as refused:
        podman.require_images(["localhost/none:1", IMAGE, "localhost/none:2", "localhost/none:1"])
    (finding,) = refused.value.findings
    assert finding.code == "GF942"
    assert finding.message == "podman has no image localhost/none:1, localhost/none:2, and a run pulls none"
    assert finding.hint is not None and "podman pull localhost/none:1; podman pull localhost/none:2" in finding.hint


def test_without_an_engine_the_reasons_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EnvironmentFailure) as refused:
        find_engine()
    (finding,) = refused.value.findings
    assert finding.code == "GF941" and refused.value.exit_code == 3
    assert finding.message == "no container engine: podman is not installed; docker is not installed"


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], ContainerEngine]:
    """An engine in front that answers with a script."""

    def put(name: str, script: str) -> ContainerEngine:
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
        return ContainerEngine(name, str(program))

    return put


def test_an_engine_that_does_not_answer_is_passed_over(fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuflow.local.gpus.PATIENCE", 0.3)
    fake("podman", "sleep 60")
    fake("docker", "echo 'Cannot connect to the Docker daemon at unix:///var/run/docker.sock.' >&2; exit 1")
    with pytest.raises(EnvironmentFailure, match="podman: it does not answer; docker: Cannot connect"):
        find_engine()
    fake("docker", "echo 'true 2 memory '")
    assert find_engine().name == "docker" and find_engine().controllers == {"memory"}


@pytest.mark.parametrize(
    ("name", "said", "rootless", "controllers", "identity"),
    [
        ("podman", "false v1 cpuset cpu memory", False, {"cpu", "memory"}, f"--user={os.getuid()}:{os.getgid()}"),
        ("podman", "true v2 memory pids", True, {"memory"}, "--userns=keep-id"),
        ("podman", "true v1 cpu memory", True, set(), "--userns=keep-id"),
        ("docker", "2 memory cpu", False, {"cpu", "memory"}, f"--user={os.getuid()}:{os.getgid()}"),
        ("docker", "true 2 memory cpu", True, {"cpu", "memory"}, "--user=0:0"),
    ],
)
def test_only_what_the_engine_can_limit_is_limited(
    fake, name: str, said: str, rootless: bool, controllers: set[str], identity: str
) -> None:
    fake(name, f"echo '{said}'")
    engine = find_engine(name)
    assert (engine.is_rootless, engine.controllers) == (rootless, controllers)
    asked = step(cpu="500m", memory="1Gi", shm="2Gi")
    words = engine.words("i", ["x"], {}, {}, None, "n", step=asked)
    assert identity in words and "--shm-size=2147483648b" in words
    assert ("--memory=1073741824b" in words, "--cpus=0.5" in words) == ("memory" in controllers, "cpu" in controllers)
    assert len(engine.remarks(asked)) == 2 - len(controllers)


def test_a_container_that_cannot_be_ended_is_said(fake) -> None:
    engine = fake("podman", 'case "$1" in container) echo true ;; *) exit 125 ;; esac')
    with pytest.raises(EnvironmentFailure, match="GF941 podman could not end the container n"):
        engine.end("n", 0)
    engine = fake("podman", "echo 'Error: cannot open the storage' >&2; exit 125")
    with pytest.raises(EnvironmentFailure, match="does not say whether n runs: Error: cannot open the storage"):
        engine.end("n")


def test_a_step_has_no_privileges_beyond_the_restricted_standard() -> None:
    asked = step(security={"privileged": True, "add_capabilities": ["IPC_LOCK"]})
    words = PODMAN.words("i", ["x", "y"], {}, {}, None, "n", step=asked)
    assert "--cap-drop=ALL" in words and "--cap-add=IPC_LOCK" in words and "--privileged" not in words
    assert words[-3:] == ["--entrypoint=x", "i", "y"] and "--init=false" in words and "--pull=never" in words
    assert PODMAN.remarks(asked) == ["it asks for all privileges of the node, and gets none"]
    assert "--user=0:0" in PODMAN.words("i", ["x"], {}, {}, None, "n", step=step(security={"run_as_root": True}))


CDI = """\
cdiVersion: 0.5.0
kind: nvidia.com/gpu
devices:
- name: "0"
  containerEdits: {deviceNodes: [{path: /dev/nvidia0}]}
- name: GPU-77c2
  containerEdits: {deviceNodes: [{path: /dev/nvidia1}]}
"""


def test_gpus_go_into_containers_by_their_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nvidia.yaml").write_text(CDI)
    monkeypatch.setattr(containers, "CDI_FOLDERS", (tmp_path, tmp_path / "none"))
    gpus = [
        Gpu(f"GPU-{name}", index, "NVIDIA-L4", None, ("l4-24gb",)) for index, name in enumerate(("5a1f", "77c2", "9e"))
    ]
    share = Room(Machine(Quantity("8"), Quantity("1Gi"), tuple(gpus[:2]))).take(Wanted(gpus=2))
    words = PODMAN.words("i", ["x"], {}, {}, share, "n")
    assert [word for word in words if "device" in word] == [
        "--device=nvidia.com/gpu=0",
        "--device=nvidia.com/gpu=GPU-77c2",
    ]
    assert "CUDA_VISIBLE_DEVICES" in words and "NVIDIA_VISIBLE_DEVICES" not in words
    assert PODMAN.client_environment({}, share)["CUDA_VISIBLE_DEVICES"] == "GPU-5a1f,GPU-77c2"
    assert '--gpus="device=GPU-5a1f,GPU-77c2"' in DOCKER.words("i", ["x"], {}, {}, share, "n")
    PODMAN.require_gpus(gpus[:2])
    DOCKER.require_gpus(gpus)
    with pytest.raises(EnvironmentFailure, match="GF943 podman does not know the GPU GPU-9e"):
        PODMAN.require_gpus(gpus)


def test_names_of_containers_are_names_to_podman_and_docker() -> None:
    assert container_name("2026-01-01T00:00:00Z", "tune.train", 3, 1) == "gpuflow-2026-01-01T00-00-00Z-tune.train-3-1"
