"""`gpuflow COMMAND …`. Finds the command, runs it, and turns every refusal into a message and an exit code.

What a command needs is imported when it is asked for: `gpuflow --version` starts about as fast as Python.
"""

from __future__ import annotations

import errno
import gc
import io
import os
import sys

from gpuflow.core.version import __version__

_STREAM_FAILURES = (errno.ENOSPC, errno.EDQUOT, errno.EIO)


def usage() -> str:
    """The overview: `gpuflow` alone, or `gpuflow --help`."""
    from gpuflow.cli.commands import COMMANDS

    width = max(map(len, COMMANDS))
    rows = "\n".join(f"  {name:{width}}  {summary}" for name, summary in COMMANDS.items())
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
    except BrokenPipeError:
        _drop_output()  # the reader has gone (`gpuflow show … | head`): end quietly
        return 0
    except KeyboardInterrupt:
        return 130
    except Exception as fault:
        # Ctrl-C while a class is made: Python 3.11 wraps it.
        return 130 if isinstance(fault.__cause__, KeyboardInterrupt) else _explain(fault)


def _explain(fault: Exception) -> int:
    """Say what went wrong; the exit code."""
    from gpuflow.cli.terminal import show_findings
    from gpuflow.core.errors import Finding, GpuflowError, Where

    if isinstance(fault, GpuflowError):
        show_findings(fault.findings)
        return fault.exit_code
    if os.environ.get("GPUFLOW_TRACEBACK"):
        raise fault
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
        if (stream := getattr(sys, name)) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115  # for as long as we run
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace", newline="\n")


def _drop_output() -> None:
    """Throw away what is left to write, so that Python does not stumble over it again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _dispatch(words: list[str]) -> int:
    if words and words[0] in ("-V", "--version", "version"):
        sys.stdout.write(f"gpuflow {__version__}\n")
        return 0
    from gpuflow.cli.terminal import print_text

    if not words or words[0] in ("-h", "--help", "help"):
        print_text(usage())
        return 0 if words else 2
    from gpuflow.cli.commands import COMMANDS, load, parser_for

    name, rest = words[0], words[1:]
    if name not in COMMANDS:
        from gpuflow.core.errors import Where, did_you_mean, fail

        text = f'"{name}" is not a command'
        raise fail("GF902", text, where=Where("gpuflow"), hint=did_you_mean(name, COMMANDS) or "see gpuflow --help")
    return load(name).run(parser_for(name).parse_args(rest))


if __name__ == "__main__":
    sys.exit(main())
