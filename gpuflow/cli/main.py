"""`gpuflow COMMAND …`. Finds the command, runs it, and turns every refusal into a message and an exit code."""

from __future__ import annotations

import argparse
import errno
import gc
import importlib
import io
import os
import sys
from typing import NoReturn, Protocol

from gpuflow.cli.commands import COMMANDS
from gpuflow.cli.terminal import say, show_findings
from gpuflow.errors import GpuflowError, Where, fail
from gpuflow.version import __version__

_STREAM_FAILURES = (errno.ENOSPC, errno.EDQUOT, errno.EIO)


class Command(Protocol):
    """What a command's module offers."""

    EXAMPLE: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, args: argparse.Namespace) -> int: ...


class Parser(argparse.ArgumentParser):
    """Says what is wrong with the options in the words of every other error."""

    def error(self, message: str) -> NoReturn:
        raise fail("GF903", message, where=Where(self.prog), hint=f"see {self.prog} --help")


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


def load(name: str) -> Command:
    """The module of a command."""
    module: Command = importlib.import_module(COMMANDS[name].module)
    return module


def usage() -> str:
    """The overview: `gpuflow` alone, or `gpuflow --help`."""
    width = max(map(len, COMMANDS))
    rows = "\n".join(f"  {name:{width}}  {command.summary}" for name, command in COMMANDS.items())
    return (
        f"gpuflow {__version__}: describe a GPU pipeline once, compile it to Airflow, Argo or Kubeflow,\n"
        "and know before submitting whether the cluster will admit it.\n\n"
        f"usage: gpuflow COMMAND …\n\ncommands:\n{rows}\n\n"
        "`gpuflow COMMAND --help` shows options and an example.\n"
        "Exit codes: 0 fine, 1 findings, 2 bad input, 3 environment.\n"
    )


def main(argv: list[str] | None = None) -> int:
    """Run one command; the process's exit code."""
    words = sys.argv[1:] if argv is None else argv
    _steady_streams()
    # Everything is read once and kept to the end: looking for garbage in it takes a third of the time of a large check.
    gc.set_threshold(200_000, 50, 1_000)
    try:
        code = _dispatch(words)
        sys.stdout.flush()  # here, where what goes wrong can still be said
        return code
    except GpuflowError as refusal:
        show_findings(refusal.findings)
        return refusal.exit_code
    except BrokenPipeError:
        _drop_output()  # the reader has gone (`gpuflow show … | head`): end quietly
        return 0
    except KeyboardInterrupt:
        return 130
    except Exception as fault:
        if os.environ.get("GPUFLOW_TRACEBACK"):
            raise
        from gpuflow.errors import Finding

        if isinstance(fault, OSError) and fault.errno in _STREAM_FAILURES:
            _drop_output()
            hint = "free some space, or write elsewhere"
            show_findings([Finding("GF906", f"the output cannot be written: {fault.strerror}", Where("gpuflow"), hint)])
            return 3
        hint = "this is a bug in gpuflow; run with GPUFLOW_TRACEBACK=1 and report what it prints"
        show_findings([Finding("GF999", f"{type(fault).__name__}: {fault}", Where("gpuflow"), hint)])
        return 3


def _steady_streams() -> None:
    """UTF-8 whatever the locale says, since the same input gives the same bytes; a closed stream is an empty one."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115  # for as long as we run
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace", newline="\n")


def _drop_output() -> None:
    """Throw away what is left to write, so that Python does not stumble over it again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _dispatch(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        say(usage())
        return 0 if words else 2
    if words[0] in ("-V", "--version", "version"):
        say(f"gpuflow {__version__}\n")
        return 0
    name, rest = words[0], words[1:]
    if name not in COMMANDS:
        from gpuflow.errors import did_you_mean

        raise fail(
            "GF902",
            f'"{name}" is not a command',
            where=Where("gpuflow"),
            hint=did_you_mean(name, COMMANDS) or "see gpuflow --help",
        )
    return load(name).run(parser_for(name).parse_args(rest))


if __name__ == "__main__":
    sys.exit(main())
