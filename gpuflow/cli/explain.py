"""`gpuflow explain CODE`."""

from __future__ import annotations

import argparse
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

import gpuflow
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
    rules = "".join(f"Rule: {place}\n" for place in places_of_rules(code.id))
    print_text(f"\n{rules}" if rules else "")
    return 0


def places_of_rules(code: str) -> Iterator[str]:
    """Where the rules of a code are written: the functions below a decorator that names it. Nothing is imported."""
    root = Path(gpuflow.__file__).parent
    decorated = re.compile(rf'^@\w+\([^)]*"{code}"[^)]*\).*\ndef (\w+)', re.MULTILINE)
    for path in sorted(root.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        for found in decorated.finditer(text) if code in text else ():
            yield f"{path.relative_to(root.parent).as_posix()}:{text.count(chr(10), 0, found.start(1)) + 1} {found[1]}"
