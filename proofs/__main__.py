"""Run a proof: `python -m proofs NAME --count N --seed S`, or say what there is: `python -m proofs --list`.

Any Python from 3.11 will do: each proof runs in its own environment under .venvs/, which make sets up first. Options
that are not listed go to the proof's own program: `python -m proofs retries --only evict --again`. A proof that was
stopped goes on where it was, where that is possible.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from proofs.table import PROOFS, Command, Proof, Stage

ROOT = Path(__file__).resolve().parents[1]
RUNNING: set[subprocess.Popen[str]] = set()
STOPPED = 143


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m proofs",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        add_help=False,
        allow_abbrev=False,
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="the proof")
    parser.add_argument("-h", "--help", action="store_true", help="this text; after a NAME, what that proof knows")
    parser.add_argument("--list", action="store_true", help="what each proof shows, what it needs, how long it takes")
    parser.add_argument("--count", metavar="N", help="how many cases")
    parser.add_argument("--seed", metavar="S", help="where random cases come from")
    asked, rest = parser.parse_known_args(given)
    if asked.list:
        print("\n\n".join(row(name, proof) for name, proof in PROOFS.items()))
        return 0
    if asked.help and not asked.name:
        parser.print_help()
        return 0
    if asked.name not in PROOFS:
        said = f"there is no proof {asked.name!r}" if asked.name else "name a proof"
        parser.error(f"{said}: {', '.join(PROOFS)}")
    proof = PROOFS[asked.name]
    if asked.help:
        print(row(asked.name, proof), flush=True)
        if proof.stages:
            return 0
        rest = ["--help"]
    try:
        values, rest = chosen(proof, {"count": asked.count, "seed": asked.seed}, rest)
        stages = filled(proof.commands(asked.name), values, rest)
    except ValueError as error:
        parser.error(f"{asked.name}: {error}")
    signal.signal(signal.SIGTERM, stop)
    try:
        return set_up(proof.environments()) or run(stages, int(values.get("workers", "1")) or 1, proof.to_the_end)
    except KeyboardInterrupt:
        return 130


def stop(*_: object) -> None:
    """SIGTERM as an exception, so that what was started ends too."""
    sys.exit(STOPPED)


def row(name: str, proof: Proof) -> str:
    """A proof as `--list` shows it."""
    lines = [f"{name}: {proof.shows}", f"    needs: {proof.needs}; takes: {proof.takes}"]
    if defaults := proof.defaults():
        lines.append("    " + " ".join(f"--{option} {value}" for option, value in defaults.items()))
    if proof.page:
        lines.append(f"    {proof.page}")
    return "\n".join(lines)


def chosen(proof: Proof, given: Mapping[str, str | None], rest: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """The value of each option that the proof has, and the words that are left for its program."""
    known = proof.defaults()
    for option, value in given.items():
        if value is not None and option not in known:
            raise ValueError(f"it has no --{option}")
    parser = argparse.ArgumentParser(prog="python -m proofs", add_help=False, allow_abbrev=False)
    for option in proof.options:
        parser.add_argument(f"--{option}")
    more, left = parser.parse_known_args(rest)
    values = {**known, **{option: value for option, value in {**given, **vars(more)}.items() if value is not None}}
    for option, value in values.items():
        if not value.isdecimal():
            raise ValueError(f"--{option} is a whole number, not {value!r}")
    return values, left


def filled(stages: Sequence[Stage], values: Mapping[str, str], rest: Sequence[str]) -> list[Stage]:
    """The commands with their values; words that are left go to the command, if there is only one."""
    if rest and (len(stages) > 1 or len(stages[0].commands) > 1):
        raise ValueError(f"it runs several programs, and none of its options is {rest[0]!r}")
    return [
        Stage(
            tuple(
                Command(
                    command.environment,
                    shlex.join([*shlex.split(command.words.format_map(values)), *rest]),
                    {name: value.format_map(values) for name, value in command.variables.items()},
                )
                for command in stage.commands
            ),
            stage.title,
        )
        for stage in stages
    ]


def set_up(environments: Sequence[str]) -> int:
    """The environments, made by make where they are missing or old."""
    words = ["make", "--no-print-directory", "-s", *(f".venvs/{name}/.ready" for name in environments)]
    return subprocess.run(words, cwd=ROOT).returncode


def run(stages: Sequence[Stage], workers: int, to_the_end: bool) -> int:
    """Stage after stage; the exit status of the first command that failed, or 0."""
    failed = 0
    for stage in stages:
        if stage.title:
            print(f"== {stage.title}", flush=True)
        alone = len(stage.commands) == 1
        ended = [ended_with(stage.commands[0])] if alone else side_by_side(stage.commands, workers)
        failed = failed or next((status for status in ended if status), 0)
        if failed and not to_the_end:
            break
    return failed


def side_by_side(commands: Sequence[Command], workers: int) -> list[int]:
    """What each printed comes in one piece."""
    with ThreadPoolExecutor(workers) as pool:
        try:
            return list(pool.map(lambda command: ended_with(command, subprocess.PIPE), commands))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in [*RUNNING]:
                process.terminate()
            raise


def ended_with(command: Command, output: int | None = None) -> int:
    """The exit status of a command, as a shell says it."""
    process = subprocess.Popen(
        [str(ROOT / ".venvs" / command.environment / "bin" / "python"), *shlex.split(command.words)],
        cwd=ROOT,
        env={**os.environ, **command.variables},
        stdout=output,
        stderr=subprocess.STDOUT if output else None,
        text=True,
    )
    RUNNING.add(process)
    try:
        if output:
            print(process.communicate()[0], end="", flush=True)
        status = process.wait()
    except KeyboardInterrupt:
        process.wait()  # the terminal has told it too
        raise
    except SystemExit:
        process.terminate()
        process.wait()
        raise
    finally:
        RUNNING.discard(process)
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main())
