"""`gpuflow normalize FILE`."""

from __future__ import annotations

import argparse
from pathlib import Path

from gpuflow.cli.output import diff_files, write_output
from gpuflow.cli.terminal import print_text
from gpuflow.core.errors import Where, fail
from gpuflow.formats.documents import read_text
from gpuflow.importing.normalize import normalize

COMMAND = Where("gpuflow normalize")
EXAMPLE = """gpuflow normalize workflow.yaml
kustomize build overlays/prod | gpuflow normalize - -o rendered.yaml
gpuflow normalize workflow.yaml -o workflow.yaml --check   # in CI: exit 1 with a diff when it is written otherwise"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="a YAML or JSON file of any tool; - for standard input")
    parser.add_argument("-o", "--output", metavar="FILE", help="where to write; default: standard output (-)")
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit 1 with a diff when the file at -o differs"
    )


def run(args: argparse.Namespace) -> int:
    if args.output == "" or (args.check and args.output in (None, "-")):
        text = "--check compares with a file, so it needs -o" if args.check else "-o needs a path"
        raise fail("GF903", text, where=COMMAND, hint="name a file: -o FILE")
    text = normalize(*read_text(args.file))
    if not args.check:
        return write_output(text, args.output)
    diffs = diff_files({Path(args.output): text}, made="normalized")
    print_text("".join(diffs))
    return 1 if diffs else 0
