"""The commands: what each is for, its module, and its parser. A module is imported when it is used."""

from __future__ import annotations

import argparse
import importlib
from typing import NoReturn, Protocol, cast

from gpuflow.core.errors import Where, fail

COMMANDS = {
    "init": "Write a small working pipeline, a site and a CI snippet",
    "validate": "Load and validate pipelines",
    "show": "Show a pipeline as gpuflow understands it",
    "demand": "Show what a pipeline needs from the cluster at its peak",
    "check": "Check whether the cluster will admit a pipeline: always, after queueing, or never",
    "why": "Say why a pod, workload, workflow or job waits now, and what would let it start",
    "snapshot": "Save what the checker needs from a live cluster to files; read-only",
    "run": "Run a pipeline on this machine, without an engine or a cluster",
    "runs": "List the runs on this machine",
    "logs": "Show the output of a step of a run, on this machine or on an engine",
    "submit": "Start a run of a pipeline on an engine, and follow it",
    "status": "Show a run on an engine: its steps, and what they wait for",
    "stop": "Stop a run on an engine; programs get their grace, exit steps run",
    "retry": "Run again what failed in a run on an engine, and what follows from it",
    "compile": "Compile pipelines for Argo, Airflow or Kubeflow",
    "argo": "Print the ConfigMap of GPU semaphores that pipelines need in Argo",
    "airflow": "Print the GPU pools that pipelines need in Airflow",
    "import": "Make a pipeline of an Argo, Kubeflow or Kubernetes file",
    "normalize": "Write a file of another tool back, equal in content",
    "gpus": "List GPUs, MIG profiles and instance types; try MIG geometries",
    "site": "Show a site: what a cluster calls its GPUs, queues and labels",
    "schema": "Print the JSON Schema of a document, for editors",
    "explain": "Explain an error or finding code",
    "demo": "Train, kill and resume a small pipeline; compile and check another",
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
    """The module of a command; of `import`, which no module can be called, `import_pipeline`."""
    return cast(Command, importlib.import_module(f"gpuflow.cli.{'import_pipeline' if name == 'import' else name}"))


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
