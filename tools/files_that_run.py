"""How many files of gpuflow run for the README's check and its Argo compile: `python tools/files_that_run.py [--list]`.

A file runs when Python executes it. Beside that stand the files of which a function is called.
"""

from __future__ import annotations

import argparse
import contextlib
import inspect
import io
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = f"{ROOT / 'gpuflow'}/"
FIRST = "docs/examples/first/"
COMMANDS = {
    "check": ["check", FIRST, "--site", f"{FIRST}site.yaml", "--cluster", f"{FIRST}cluster/", "--engine", "argo"],
    "compile": ["compile", FIRST, "--site", f"{FIRST}site.yaml", "--target", "argo", "-o"],
}
"""Those of the README; a compile writes into a folder of its own."""


def files_of(name: str) -> dict[str, list[str]]:
    """The files that run for a command in this process, which must not have run another one: modules load once."""
    called: set[str] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        # The body of a module or of a class is no function: its names are no fast locals.
        if event == "call" and code.co_flags & inspect.CO_OPTIMIZED and code.co_filename.startswith(PACKAGE):
            called.add(code.co_filename)

    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.chdir(ROOT),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()) as said,
    ):
        words = [*COMMANDS[name], *([f"{folder}/"] if name == "compile" else [])]
        sys.setprofile(note)
        try:
            from gpuflow.cli.main import main

            ended = main(words)
        finally:
            sys.setprofile(None)
    if ended:
        raise SystemExit(f"gpuflow {' '.join(words)} ended with {ended}:\n{said.getvalue()}")
    executed = {str(each.__file__) for each in list(sys.modules.values()) if getattr(each, "__file__", None)}
    return {
        "executed": sorted(file[len(PACKAGE) :] for file in executed if file.startswith(PACKAGE)),
        "called": sorted(file[len(PACKAGE) :] for file in called),
    }


def files_apart(name: str) -> dict[str, list[str]]:
    """The same, in a process of its own."""
    words = [sys.executable, __file__, "--of", name]
    found: dict[str, list[str]] = json.loads(subprocess.run(words, check=True, stdout=subprocess.PIPE, cwd=ROOT).stdout)
    return found


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--list", action="store_true", help="name the files too")
    asked.add_argument("--of", choices=COMMANDS, help="one command, in this process, as JSON")
    options = asked.parse_args()
    if options.of:
        print(json.dumps(files_of(options.of)))
        return 0
    for name in COMMANDS:
        found = files_apart(name)
        print(f"{name}: {len(found['executed'])} files run, of {len(found['called'])} a function is called")
        for file in found["executed"] if options.list else ():
            print(f"  {file}{'' if file in found['called'] else '  (no function called)'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
