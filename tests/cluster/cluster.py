"""One private cluster from `up` to `down`."""

from __future__ import annotations

import contextlib
import fcntl
import json
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..engines import build
from . import (
    argo,
    dns,
    images,
    jobset,
    kubeflow,
    kueue,
    machine,
    mpi_operator,
    nodes,
    programs,
    trainer,
    training_operator,
    volcano,
)
from .kube import Kube
from .layout import ADDRESS, IMAGES, REAL_NODE, Layout
from .programs import Program
from .sandbox import ProgramError, Sandbox
from .waiting import until

CONTROL_PLANE = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "kwok")
NODE = ("kubelet",)
ADDONS: Mapping[str, Callable[[Cluster], None]]
IN_PODS = ("argoexec",)
ADDON_PROGRAMS = {
    "argo": ("workflow-controller", "argoexec"),
    "dns": ("coredns",),
    "jobset": ("jobset",),
    "trainer": ("trainer",),
    "training-operator": ("training-operator",),
    "mpi-operator": ("mpi-operator",),
    "volcano": ("volcano-controllers", "volcano-scheduler", "volcano-webhooks"),
    "kueue": ("kueue",),
    "kubeflow": ("kfp-driver", "kfp-launcher", "kfp-persistence", "kfp-schedules", "kfp-apiserver"),
}
NEEDS = {
    "kubeflow": "argo",
    "jobset": "dns",
    "trainer": "jobset",
    "training-operator": "dns",
    "mpi-operator": "dns",
    "volcano": "dns",
}
"""What an addon stands on, and is put on before it."""
FOR_PODS = ("dns",)
"""Addons of no use where no node runs pods."""
AFTER = {**NEEDS, "kueue": "jobset"}
"""What goes before an addon where both are wanted: Kueue looks for the kinds it knows when it starts."""


class Cluster:
    """A cluster in namespaces of its own; while its run directory exists, there is work for `down`."""

    private = True

    def __init__(self, layout: Layout, sandbox: Sandbox, state: dict[str, Any]) -> None:
        self.layout = layout
        self.sandbox = sandbox
        self.state = state
        self._lock = threading.RLock()
        """Addons are put on side by side, and all of them write down what they did."""

    @classmethod
    def up(
        cls, name: str, *, node: bool = True, addons: Sequence[str] = (), say: Callable[[str], None] = print
    ) -> Cluster:
        """Build what is missing, clear away a dead predecessor, start; a failure or Ctrl-C leaves nothing."""
        layout = Layout(name)
        machine.require(build.cache(), node=node)
        needed = (
            *CONTROL_PLANE,
            *(NODE if node else ()),
            *(p for addon in _with_needs(addons, node=node) for p in cls._programs(addon, node=node)),
        )
        build.build(needed)
        with _locked(layout):
            if found := cls._find(layout):
                raise ProgramError(f"cluster {name} is already up; `down` ends it ({found.layout.run})")
            _clear(layout)
            layout.run.mkdir(parents=True)
            state = {
                "name": name,
                "phase": "starting",
                "node": node,
                "parts": [],
                "programs": {},
                "addons": [],
                "images": {},
            }
            layout.state.write_text(json.dumps(state))
            try:
                return cls._start(layout, state, addons, say)
            except BaseException:
                _clear(layout)
                raise

    @classmethod
    def _start(
        cls, layout: Layout, state: dict[str, Any], addons: Sequence[str], say: Callable[[str], None]
    ) -> Cluster:
        cluster = cls(layout, Sandbox(layout.run), state)
        with cluster.part("namespaces", say):
            cluster.sandbox = Sandbox.launch(layout.run, ADDRESS)
            machine.make_cgroups(layout.cgroup, cluster.sandbox.pid)
            programs.credentials(layout)
        with cluster.part("etcd and API server", say):
            cluster.run("etcd", programs.etcd(layout))
            cluster.run("kube-apiserver", programs.apiserver(layout))
            until(
                "the API server",
                cluster.kube.answers,
                otherwise=lambda: cluster.sandbox.log("kube-apiserver"),
            )
        with cluster.part("controllers and scheduler", say):
            cluster.run("kube-controller-manager", programs.controller_manager(layout), wait=False)
            cluster.run("kube-scheduler", programs.scheduler(layout), wait=False)
            cluster.run("kwok", programs.kwok(layout), wait=False)
            for name in ("kube-controller-manager", "kube-scheduler", "kwok"):
                cluster.await_program(name)
            until("the default service account", lambda: cluster.kube.get("serviceaccount", "default"))
        if state["node"]:
            with cluster.part("real node", say):
                cluster._start_node()
        for wave in _waves(_with_needs(addons, node=state["node"])):
            with ThreadPoolExecutor(len(wave)) as pool:
                for done in [pool.submit(cluster.ensure, addon, say) for addon in wave]:
                    done.result()
        state["phase"] = "up"
        cluster._save()
        cluster.sandbox.settle()
        return cluster

    def _start_node(self) -> None:
        self.run("containerd", programs.containerd(self.layout))
        until("containerd", lambda: self.ctr("version"), otherwise=lambda: self.sandbox.log("containerd"))
        plugins = [line.split() for line in self.ctr("plugins", "list").splitlines()]
        if not any(row[1:2] == ["cri"] and row[-1] == "ok" for row in plugins):
            raise ProgramError(f"containerd cannot serve kubelet:\n{self.sandbox.log('containerd')}")
        for image in ("pause", "busybox"):
            self.image(image)
        self.run("kubelet", programs.kubelet(self.layout))
        self.await_node()

    def await_node(self) -> None:
        """Wait until the real node is ready, and give it its devices (again)."""
        nodes.await_ready(self.kube, REAL_NODE)
        nodes.add_devices(self.kube, REAL_NODE)

    @classmethod
    def _find(cls, layout: Layout) -> Cluster | None:
        sandbox = Sandbox(layout.run)
        if not layout.state.exists() or not sandbox.alive():
            return None
        state = json.loads(layout.state.read_text())
        return cls(layout, sandbox, state) if state["phase"] == "up" else None

    @classmethod
    def find(cls, name: str) -> Cluster | None:
        """The running cluster of that name."""
        return cls._find(Layout(name))

    @staticmethod
    def down(name: str) -> bool:
        """End the cluster, living, half-started or dead; true when there was something to end."""
        layout = Layout(name)
        with _locked(layout):
            return _clear(layout)

    @property
    def kube(self) -> Kube:
        program, cache = str(build.binary("kubectl")), self.layout.run / "kubectl-cache"
        return Kube(self.layout.kubeconfig, program, self.enter, cache=cache)

    @property
    def enter(self) -> tuple[str, ...]:
        """The words before a command that make it run in the cluster's network."""
        return self.sandbox.enter

    def run(self, name: str, program: Program, *, wait: bool = True) -> None:
        """Start a program, remember how, and wait until it serves its port."""
        with self._lock:
            self.state["programs"][name] = asdict(program)
            self._save()
        machine.await_watchers()
        self.sandbox.start(name, program.argv, program.env)
        if wait:
            self.await_program(name)

    def await_program(self, name: str) -> None:
        if port := self.state["programs"][name]["port"]:
            self.sandbox.await_port(name, port)

    def stop(self, name: str, how: signal.Signals = signal.SIGTERM) -> None:
        self.sandbox.stop(name, how)

    def start(self, name: str, env: Mapping[str, str] | None = None) -> None:
        """Start a stopped program as before, with more environment when given."""
        program = Program(**self.state["programs"][name])
        machine.await_watchers()
        self.sandbox.start(name, program.argv, {**program.env, **(env or {})})
        self.await_program(name)

    def restart(self, name: str, how: signal.Signals = signal.SIGKILL, env: Mapping[str, str] | None = None) -> None:
        """End a program (by default without warning) and start it again."""
        self.stop(name, how)
        self.start(name, env)
        if name == "kube-apiserver":
            until("the API server", self.kube.answers)
        if name == "kubelet":
            self.await_node()

    def ensure(self, addon: str, say: Callable[[str], None] = print) -> None:
        """Put Argo, Kueue, JobSet, names or KFP on the cluster unless it is there."""
        if addon not in self.state["addons"]:
            for needed in _with_needs([addon], node=self.state["node"])[:-1]:
                self.ensure(needed, say)
            build.build(self._programs(addon, node=self.state["node"]))
            with self.part(addon, say):
                ADDONS[addon](self)
            with self._lock:
                self.state["addons"].append(addon)
                self._save()

    @staticmethod
    def _programs(addon: str, *, node: bool) -> tuple[str, ...]:
        """What it is built of; what runs in pods only where a node runs them."""
        return tuple(each for each in ADDON_PROGRAMS[addon] if node or each not in IN_PODS)

    def image(self, image: str) -> str:
        """The reference of a local image, imported into the node when it is not there or has changed."""
        if not self.state["node"]:
            return IMAGES[image]
        archive = images.archive(image)
        if self.state["images"].get(image) != archive.name:
            self.ctr("images", "import", str(archive))
            with self._lock:
                self.state["images"][image] = archive.name
                self._save()
        return IMAGES[image]

    def ctr(self, *words: str) -> str:
        command = ["ctr", f"--address={self.layout.containerd_socket}", "--namespace=k8s.io", *words]
        done = subprocess.run(command, text=True, capture_output=True, check=False)
        if done.returncode and words != ("version",):
            raise ProgramError(f"{' '.join(command)}: {done.stderr.strip()}")
        return done.stdout if done.returncode == 0 else ""

    def environment(self) -> dict[str, str]:
        """What a command run in the cluster's network gets to know of it."""
        cache = self.layout.run / "kubectl-cache"
        return {"KUBECONFIG": str(self.layout.kubeconfig), "KUBECACHEDIR": str(cache)}

    @contextlib.contextmanager
    def part(self, label: str, say: Callable[[str], None]) -> Iterator[None]:
        """Measure one part of the start."""
        started = time.monotonic()
        yield
        seconds = round(time.monotonic() - started, 1)
        with self._lock:
            self.state["parts"].append([label, seconds])
            self._save()
        say(f"{label}: {seconds:.1f} s")

    def _save(self) -> None:
        partial = self.layout.state.with_suffix(".new")
        partial.write_text(json.dumps(self.state, indent=1))
        partial.replace(self.layout.state)


def _with_needs(addons: Sequence[str], *, node: bool) -> list[str]:
    """These addons and what they stand on, each once."""
    every = dict.fromkeys(each for addon in addons for each in _chain(addon))
    return [each for each in every if node or each not in FOR_PODS or each in addons]


def _chain(addon: str) -> list[str]:
    return [*(_chain(NEEDS[addon]) if addon in NEEDS else []), addon]


def _waves(addons: Sequence[str]) -> list[list[str]]:
    """Which of them are put on side by side, one wave after another."""
    left, waves = list(addons), []
    while left:
        waves.append([each for each in left if AFTER.get(each) not in left])
        left = [each for each in left if each not in waves[-1]]
    return waves


@contextlib.contextmanager
def _locked(layout: Layout) -> Iterator[None]:
    layout.lock.parent.mkdir(parents=True, exist_ok=True)
    with layout.lock.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ProgramError(f"another `up` or `down` of cluster {layout.name} is at work") from None
        yield


def _clear(layout: Layout) -> bool:
    """End whatever is left of a cluster; safe to repeat, and to cut short and repeat."""
    if not layout.run.exists():
        return False
    Sandbox(layout.run).end()
    machine.remove_cgroups(layout.cgroup)
    # The state goes last: while it is there, there is work to do.
    for path in sorted(layout.run.iterdir(), key=lambda path: path == layout.state):
        _remove(path)
    layout.run.rmdir()
    return True


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


ADDONS = {
    "argo": argo.install,
    "dns": dns.install,
    "jobset": jobset.install,
    "trainer": trainer.install,
    "training-operator": training_operator.install,
    "mpi-operator": mpi_operator.install,
    "volcano": volcano.install,
    "kueue": kueue.install,
    "kubeflow": kubeflow.install,
}
