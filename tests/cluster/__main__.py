"""`python -m tests.cluster up|down|status|exec`: a private cluster by hand."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from types import FrameType

from ..engines.build import BuildError
from . import nodes
from .cluster import ADDON_PROGRAMS, Cluster
from .kube import KubeError
from .layout import Layout
from .machine import MachineError
from .sandbox import ProgramError
from .waiting import TooLate

HELP = {
    "argo": "Argo Workflows",
    "dns": "names for pods and services (CoreDNS)",
    "jobset": "JobSet, for gangs of pods; brings names where a node runs pods, and Kueue then queues JobSets",
    "kubeflow": "Kubeflow Pipelines, and Argo below it",
    "kueue": "Kueue",
    "mpi-operator": "Kubeflow's MPI operator, and names",
    "trainer": "Kubeflow Trainer, and JobSet below it",
    "training-operator": "Kubeflow's training operator, for PyTorchJobs, and names",
    "volcano": "Volcano with its scheduler, and names",
}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster", description=__doc__)
    parser.add_argument("--name", default="default", help="which cluster, when there are several")
    commands = parser.add_subparsers(dest="command", required=True)
    up = commands.add_parser("up", help="start the cluster")
    for addon in ADDON_PROGRAMS:
        up.add_argument(f"--{addon}", action="store_true", help=f"with {HELP[addon]}")
    up.add_argument(
        "--control-plane",
        action="store_true",
        help="without a node that runs pods; Argo then makes pods, and none of them runs",
    )
    up.add_argument(
        "--nodes",
        type=int,
        default=0,
        metavar="N",
        help="simulated nodes with 8 GPUs each, tainted gpuflow.test/simulated",
    )
    commands.add_parser("down", help="end the cluster, also one that died or was half started")
    commands.add_parser("status", help="what runs, and how long each part took to start")
    execute = commands.add_parser("exec", help="run a command in the cluster's network, with KUBECONFIG set")
    execute.add_argument("words", nargs=argparse.REMAINDER, metavar="-- command")
    return parser.parse_args()


def up(options: argparse.Namespace) -> int:
    addons = [addon for addon in ADDON_PROGRAMS if getattr(options, addon.replace("-", "_"))]
    cluster = Cluster.up(options.name, node=not options.control_plane, addons=addons)
    try:
        _furnish(cluster, options.nodes)
    except BaseException:
        Cluster.down(options.name)
        raise
    print(f"up; use it: python -m tests.cluster --name {options.name} exec -- kubectl get nodes")
    return 0


def _furnish(cluster: Cluster, count: int) -> None:
    """The images a person may want to use, and simulated nodes."""
    if cluster.state["node"]:
        print(f"images: {', '.join(cluster.image(image) for image in ('busybox', 'python', 'gpuflow'))}")
    names = [f"gpu-{number}" for number in range(count)]
    for name in names:
        cluster.kube.apply(nodes.simulated(name, taints=[nodes.FENCE]))
    for name in names:
        nodes.await_ready(cluster.kube, name)


def down(options: argparse.Namespace) -> int:
    print(f"cluster {options.name}: {'ended' if Cluster.down(options.name) else 'there was none'}")
    return 0


def status(options: argparse.Namespace) -> int:
    cluster = Cluster.find(options.name)
    if cluster is None:
        left = Layout(options.name).run.exists()
        print(f"cluster {options.name}: {'dead or starting; `down` clears it away' if left else 'not up'}")
        return 1
    for label, seconds in cluster.state["parts"]:
        print(f"{label:28} {seconds:6.1f} s")
    running = cluster.sandbox.running()
    for name in cluster.state["programs"]:
        print(f"{name:28} {'running' if name in running else 'ENDED'}")
    print(cluster.kube("get", "nodes"), end="")
    return 0


def execute(options: argparse.Namespace) -> int:
    cluster = Cluster.find(options.name)
    if cluster is None:
        raise ProgramError(f"cluster {options.name} is not up; start it with: python -m tests.cluster up")
    words = options.words[1:] if options.words[:1] == ["--"] else options.words
    if not words:
        raise ProgramError("name a command: python -m tests.cluster exec -- kubectl get pods")
    path = os.pathsep.join([os.path.dirname(cluster.kube.program), os.environ.get("PATH", "")])
    environment = {**os.environ, **cluster.environment(), "PATH": path}
    return subprocess.run([*cluster.enter, *words], env=environment, check=False).returncode


COMMANDS = {"up": up, "down": down, "status": status, "exec": execute}


def _stop(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main() -> int:
    # Also when started in the background, where shells have SIGINT ignored.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stop)
    options = _arguments()
    try:
        return COMMANDS[options.command](options)
    except (BuildError, MachineError, ProgramError, KubeError, TooLate) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; nothing was left running", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
