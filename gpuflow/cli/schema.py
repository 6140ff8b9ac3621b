"""`gpuflow schema [pipeline|site]`."""

from __future__ import annotations

import argparse

from gpuflow.cli.terminal import show_json
from gpuflow.site.model import site_schema
from gpuflow.spec.schema import pipeline_schema

EXAMPLE = """gpuflow schema > pipeline.schema.json
# then, as the first line of a pipeline, for editors with the YAML language server:
# yaml-language-server: $schema=pipeline.schema.json"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    help = "which document; default: pipeline"
    parser.add_argument("document", nargs="?", choices=("pipeline", "site"), default="pipeline", help=help)


def run(args: argparse.Namespace) -> int:
    show_json(pipeline_schema() if args.document == "pipeline" else site_schema())
    return 0
