"""The commands: what each is for, its module, and its parser. A module is imported when it is used."""

from __future__ import annotations

import argparse
import importlib
from typing import NoReturn, Protocol

from gpuflow.core.errors import Where, fail

COMMANDS = {
    "init": "Write a small working pipeline, a site and a CI snippet",
    "validate": "Load and validate pipelines",
    "show": "Show a pipeline as gpuflow understands it",
    "demand": "Show what a pipeline needs from the cluster at its peak",
    "check": "Check whether the cluster will admit a pipeline: always, after queueing, or never",
    "why": "Say why a pod, workload, workflow or job waits now, and what would let it start",
    "snapshot": "Save what the checker needs from a live cluster to files; read-only",
    "compile": "Compile pipelines for Argo, Airflow or Kubeflow",
    "argo": "Print the ConfigMap of GPU semaphores that pipelines need in Argo",
    "airflow": "Print the GPU pools that pipelines need in Airflow",
    "import": "Make a pipeline of an Argo, Kubeflow or Kubernetes file",
    "normalize": "Write a file of another tool back, equal in content",
    "gpus": "List GPUs, MIG profiles and instance types; try MIG geometries",
    "site": "Show a site: what a cluster calls its GPUs, queues and labels",
    "schema": "Print the JSON Schema of a document, for editors",
    "explain": "Explain an error or finding code",
    "demo": "Compile and check a built-in example",
    "completion": "Print a completion script for bash, zsh or fish",
}


class Command(Protocol):
    """What a command's module offers."""

    EXAMPLE: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, args: argparse.Namespace) -> int: ...


class Parser(argparse.ArgumentParser):
    """Says what is wrong with the options in the words of every other error."""

    def error(self, message: str) -> NoReturn:
        raise fail("GF903", message, where=Where(self.prog), hint=f"see {self.prog} --help")


def load(name: str) -> Command:
    command: Command
    match name:
        case "init":
            from gpuflow.cli import init as command
        case "validate":
            from gpuflow.cli import validate as command
        case "show":
            from gpuflow.cli import show as command
        case "demand":
            from gpuflow.cli import demand as command
        case "check":
            from gpuflow.cli import check as command
        case "why":
            from gpuflow.cli import why as command
        case "snapshot":
            from gpuflow.cli import snapshot as command
        case "compile":
            from gpuflow.cli import compile as command
        case "argo":
            from gpuflow.cli import argo as command
        case "airflow":
            from gpuflow.cli import airflow as command
        case "import":
            from gpuflow.cli import import_pipeline as command
        case "normalize":
            from gpuflow.cli import normalize as command
        case "gpus":
            from gpuflow.cli import gpus as command
        case "site":
            from gpuflow.cli import site as command
        case "schema":
            from gpuflow.cli import schema as command
        case "explain":
            from gpuflow.cli import explain as command
        case "demo":
            from gpuflow.cli import demo as command
        case _:
            # It lists the commands, so that this module cannot import it.
            command = importlib.import_module("gpuflow.cli.completion")
    return command


def parser_for(name: str) -> argparse.ArgumentParser:
    """The parser of one command, with its example at the end of the help."""
    command = load(name)
    parser = Parser(
        prog=f"gpuflow {name}",
        description=COMMANDS[name] + ".",
        epilog="example:\n" + "\n".join(f"  {line}" for line in command.EXAMPLE.strip().splitlines()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    command.add_arguments(parser)
    return parser
