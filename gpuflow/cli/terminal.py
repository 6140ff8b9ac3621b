"""Colour and tables on a terminal, plain text in a pipe."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any, TextIO

from gpuflow.errors import Finding

_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "blue": "34", "cyan": "36"}
_SEVERITY = {"error": "red", "warning": "yellow", "note": "cyan"}


def colored(stream: TextIO) -> bool:
    """Whether to write color: NO_COLOR and FORCE_COLOR decide, else whether a person is reading."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def paint(text: str, *styles: str, stream: TextIO | None = None) -> str:
    """`text` in color when the stream takes it."""
    if not text or not colored(stream or sys.stdout):
        return text
    return f"\x1b[{';'.join(_STYLES[style] for style in styles)}m{text}\x1b[0m"


def show_findings(findings: Iterable[Finding], stream: TextIO | None = None) -> None:
    """Findings on standard error, as `file:line:column: GF123 message` and the way out."""
    out = stream or sys.stderr
    for finding in findings:
        first, *rest = finding.render().splitlines()
        place, _, message = first.partition(f": {finding.code} ")
        code = paint(finding.code, "bold", _SEVERITY[finding.severity], stream=out)
        out.write(f"{place}: {code} {message}\n")
        out.writelines(f"{paint(line, 'dim', stream=out)}\n" for line in rest)


def table(rows: Sequence[Sequence[str]], head: Sequence[str] | None = None, *, right: Sequence[int] = ()) -> str:
    """Columns aligned with two blanks between them; `right` names the columns that are numbers."""
    everything = [list(head), *map(list, rows)] if head else [list(row) for row in rows]
    if not everything:
        return ""
    widths = [max(len(row[i]) for row in everything) for i in range(len(everything[0]))]
    lines = []
    for index, row in enumerate(everything):
        cells = [cell.rjust(widths[i]) if i in right else cell.ljust(widths[i]) for i, cell in enumerate(row)]
        line = "  ".join(cells).rstrip()
        lines.append(paint(line, "bold") if head and index == 0 else line)
    return "\n".join(lines)


def show_json(data: Any) -> None:
    """JSON for programs: stable order, readable indentation."""
    sys.stdout.write(json.dumps(data, indent=2, ensure_ascii=False) + "\n")
