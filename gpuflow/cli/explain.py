"""`gpuflow explain CODE`."""

from __future__ import annotations

import argparse
import textwrap

from gpuflow.cli.terminal import paint, print_text, show_json, table
from gpuflow.core.codes import CODES
from gpuflow.core.errors import Where, did_you_mean, fail

EXAMPLE = """gpuflow explain GF172
gpuflow explain          # the whole table"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("code", nargs="?", help="a code such as GF172; default: the whole table")
    parser.add_argument("--format", choices=("text", "json"), default="text")


def run(args: argparse.Namespace) -> int:
    if args.code is None:
        rows = [(code.id, code.title) for code in CODES.values()]
        if args.format == "json":
            show_json([code._asdict() for code in CODES.values()])
        else:
            print_text(table(rows, ("code", "what")) + "\n")
        return 0
    code = CODES.get(args.code.upper())
    if code is None:
        raise fail(
            "GF905",
            f'"{args.code}" is not a gpuflow code',
            where=Where("gpuflow explain"),
            hint=did_you_mean(args.code.upper(), CODES) or "gpuflow explain lists them",
        )
    if args.format == "json":
        show_json(code._asdict())
        return 0
    print_text(f"{paint(code.id, 'bold')} {code.title}\n\n")
    print_text("\n\n".join(textwrap.fill(part, 96) for part in (code.meaning, f"Way out: {code.hint}")) + "\n")
    return 0
