"""The commands: a table of name, one line and module, and the parser of each. A module is imported when it is used."""

from __future__ import annotations

import argparse
import importlib
from typing import NamedTuple, NoReturn, Protocol

from gpuflow.core.errors import Where, fail


class Entry(NamedTuple):
    summary: str
    module: str


COMMANDS: dict[str, Entry] = {
    "init": Entry("Write a small working pipeline, a site and a CI snippet", "gpuflow.cli.init"),
    "validate": Entry("Load and validate pipelines", "gpuflow.cli.validate"),
    "show": Entry("Show a pipeline as gpuflow understands it", "gpuflow.cli.show"),
    "demand": Entry("Show what a pipeline needs from the cluster at its peak", "gpuflow.cli.demand"),
    "check": Entry(
        "Check whether the cluster will admit a pipeline: always, after queueing, or never", "gpuflow.cli.check"
    ),
    "why": Entry("Say why a pod, workload, workflow or job waits now, and what would let it start", "gpuflow.cli.why"),
    "snapshot": Entry("Save what the checker needs from a live cluster to files; read-only", "gpuflow.cli.snapshot"),
    "compile": Entry("Compile pipelines for Argo, Airflow or Kubeflow", "gpuflow.cli.compile"),
    "argo": Entry("Print the ConfigMap of GPU semaphores that pipelines need in Argo", "gpuflow.cli.argo"),
    "airflow": Entry("Print the GPU pools that pipelines need in Airflow", "gpuflow.cli.airflow"),
    "import": Entry("Make a pipeline of an Argo, Kubeflow or Kubernetes file", "gpuflow.cli.import_pipeline"),
    "normalize": Entry("Write a file of another tool back, equal in content", "gpuflow.cli.normalize"),
    "gpus": Entry("List GPUs, MIG profiles and instance types; try MIG geometries", "gpuflow.cli.gpus"),
    "site": Entry("Show a site: what a cluster calls its GPUs, queues and labels", "gpuflow.cli.site"),
    "schema": Entry("Print the JSON Schema of a document, for editors", "gpuflow.cli.schema"),
    "explain": Entry("Explain an error or finding code", "gpuflow.cli.explain"),
    "demo": Entry("Compile and check a built-in example", "gpuflow.cli.demo"),
    "completion": Entry("Print a completion script for bash, zsh or fish", "gpuflow.cli.completion"),
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
    module: Command = importlib.import_module(COMMANDS[name].module)
    return module


def parser_for(name: str) -> argparse.ArgumentParser:
    """The parser of one command, with its example at the end of the help."""
    command = load(name)
    parser = Parser(
        prog=f"gpuflow {name}",
        description=COMMANDS[name].summary + ".",
        epilog="example:\n" + "\n".join(f"  {line}" for line in command.EXAMPLE.strip().splitlines()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    command.add_arguments(parser)
    return parser
