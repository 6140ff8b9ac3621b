"""`gpuflow init [DIR]`."""

from __future__ import annotations

import argparse
from importlib import resources
from pathlib import Path

from gpuflow.cli.output import write_files
from gpuflow.cli.terminal import say
from gpuflow.errors import Where, fail
from gpuflow.printable import line

EXAMPLE = """gpuflow init my-pipeline
cd my-pipeline && gpuflow check pipeline.yaml --site site.yaml --cluster cluster/"""
FILES = {
    "pipeline.yaml": "pipeline.yaml",
    "site.yaml": "site.yaml",
    "cluster.yaml": "cluster/quota.yaml",
    "ci.yaml": ".github/workflows/gpuflow.yaml",
}
"""Templates that come with gpuflow, and where they go."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", nargs="?", default=".", metavar="DIR", help="where to write; default: this folder")
    parser.add_argument("--force", action="store_true", help="overwrite existing files")


def run(args: argparse.Namespace) -> int:
    root = Path(args.folder)
    templates = resources.files("gpuflow") / "templates"
    files = {root / place: (templates / name).read_text(encoding="utf-8") for name, place in FILES.items()}
    present = [str(path) for path in files if path.exists() or path.is_symlink()]
    if present and not args.force:
        raise fail(
            "GF907",
            f"{', '.join(present)} already exist",
            where=Where(str(root)),
            hint="choose another folder, or --force",
        )
    write_files(files, folder=root)
    for path in files:
        say(f"wrote {line(str(path))}\n")
    where = "" if args.folder == "." else f"cd {line(args.folder)} && "
    say(f"next: {where}gpuflow check pipeline.yaml --site site.yaml --cluster cluster/ --engine argo\n")
    say(f"then: {where}gpuflow compile pipeline.yaml --site site.yaml --target argo -o argo_templates/\n")
    say(f"last: commit all of it, and say in {line(str(root / FILES['ci.yaml']))} where your copy of gpuflow is\n")
    return 0
