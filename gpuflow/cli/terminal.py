"""Color and tables on a terminal, plain text in a pipe."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import Event, Thread
from time import monotonic
from typing import Any, TextIO

from gpuflow.core.errors import Finding
from gpuflow.core.printable import colored_lines, json_text, line, lines

DELAY = 1.0
"""Seconds until anything is shown: what is quick leaves no trace."""
EVERY = 0.5
ERASE = "\r\x1b[K"


@contextmanager
def progress(what: str, stream: TextIO | None = None) -> Iterator[None]:
    """Say `what` and how long it has taken, on standard error, until the block ends; then the line is erased. Only
    where a person watches: nothing is written to a pipe, to a file or in CI."""
    out = stream or sys.stderr
    if not out.isatty() or os.environ.get("TERM") == "dumb" or os.environ.get("CI"):
        yield
        return
    ended = Event()
    watcher = Thread(target=_show, args=(line(what), out, ended), daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()


def _show(what: str, out: TextIO, ended: Event) -> None:
    start = monotonic()
    if ended.wait(DELAY):
        return
    while True:
        out.write(f"{ERASE}{what}: {monotonic() - start:.0f} s")
        out.flush()
        if ended.wait(EVERY):
            break
    out.write(ERASE)
    out.flush()


_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "blue": "34", "cyan": "36"}
_SEVERITY = {"error": "red", "warning": "yellow", "note": "cyan"}


def uses_color(stream: TextIO) -> bool:
    """Whether to write color: NO_COLOR and FORCE_COLOR decide, else whether a person is reading."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def paint(text: str, *styles: str, stream: TextIO | None = None) -> str:
    """`text` in color when the stream takes it."""
    if not text or not uses_color(stream or sys.stdout):
        return text
    return f"\x1b[{';'.join(_STYLES[style] for style in styles)}m{text}\x1b[0m"


def print_text(text: str, stream: TextIO | None = None) -> None:
    """Print text for people, by default on standard output. Only gpuflow's own colors pass."""
    out = stream or sys.stdout
    out.write(colored_lines(text) if uses_color(out) else lines(text))


def line_writer(out: TextIO) -> Callable[[str], None]:
    """Writes a line at once. A run goes on where nobody reads any more: `… | head`, or a terminal that is gone."""

    def write(text: str) -> None:
        with suppress(OSError, ValueError):
            out.write((colored_lines(text) if "\x1b" in text else lines(text)) + "\n")
            out.flush()

    return write


def put(document: str) -> None:
    """A document for another program, on standard output, as its writer made it: YAML, JSON, XML, Python, Markdown."""
    sys.stdout.write(document)


def show_findings(findings: Iterable[Finding], stream: TextIO | None = None) -> None:
    """Findings on standard error, as `file:line:column: GF123 message` with the hint."""
    out = stream or sys.stderr
    for finding in findings:
        first, *rest = finding.render().splitlines()
        place, _, message = first.partition(f": {finding.code} ")
        code = paint(finding.code, "bold", _SEVERITY[finding.severity], stream=out)
        print_text(
            "\n".join((f"{place}: {code} {message}", *(paint(each, "dim", stream=out) for each in rest), "")), out
        )


def table(rows: Sequence[Sequence[str]], head: Sequence[str] | None = None, *, right: Sequence[int] = ()) -> str:
    """Columns aligned with two blanks between them; `right` names the columns that are numbers."""
    everything = [[line(cell) for cell in row] for row in ([head, *rows] if head else rows)]
    if not everything:
        return ""
    widths = [max(len(row[i]) for row in everything) for i in range(len(everything[0]))]
    shown = []
    for index, row in enumerate(everything):
        cells = [cell.rjust(widths[i]) if i in right else cell.ljust(widths[i]) for i, cell in enumerate(row)]
        whole = "  ".join(cells).rstrip()
        shown.append(paint(whole, "bold") if head and index == 0 else whole)
    return "\n".join(shown)


def show_json(data: Any) -> None:
    """JSON for programs: stable order, readable indentation."""
    put(json_text(data))
