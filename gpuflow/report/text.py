"""A report for a person: the verdict, the line that matters, bars for used / peak / hard."""

from __future__ import annotations

from collections.abc import Callable

from gpuflow.checker.report import BESIDE, LimitLine, Report
from gpuflow.checker.wording import amount
from gpuflow.errors import Finding
from gpuflow.printable import line, shown_lines

Paint = Callable[..., str]
COLOR = {"always": "green", "may-queue": "yellow", "unknown": "yellow", "never": "red"}
BAR = 10
WORDS = {"ResourceQuota": "quota", "ClusterQueue": "queue", "Nodes": "nodes"}
"""What the kinds of scopes are called in a line."""


def plain(text: str, *styles: str) -> str:
    """No color."""
    return text


def render(report: Report, paint: Paint = plain) -> str:
    """The whole report."""
    verdict = paint(report.verdict.replace("-", " ").upper(), "bold", COLOR[report.verdict])
    noun = "namespaces" if BESIDE in report.namespace else "namespace"
    lines = [f"{line(report.pipeline)} in {noun} {report.namespace}: {verdict}", ""]
    lines += _scopes(report.scopes, paint)
    if report.scopes:
        lines.append("")
    for finding in report.findings:
        lines += [*_finding(finding, paint), ""]
    is_said = any(finding.code == "GF747" for finding in report.findings)
    if report.engine == "none" and not report.by_itself and not is_said:
        lines.append(paint("Counts no engine's own containers and pods; --engine adds them.", "dim"))
    lines.append(paint(f"Checked against {line(report.as_of)}. {report.assumes}", "dim"))
    return "\n".join(lines) + "\n"


def _scopes(scopes: tuple[LimitLine, ...], paint: Paint) -> list[str]:
    rows = [
        (
            line(f"{WORDS.get(scope.kind, scope.kind)} {scope.name}"),
            line(scope.resource),
            f"used {amount(scope.used if scope.used is not None else '?')}",
            f"peak {amount(scope.peak if scope.peak is not None else '?')}",
            f"hard {amount(scope.hard)}",
            bar(scope),
        )
        for scope in scopes
    ]
    widths = [max((len(row[i]) for row in rows), default=0) for i in range(6)]
    lines = []
    for row, scope in zip(rows, scopes, strict=True):
        cells = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        lines.append(f"  {cells}  {paint(scope.verdict.replace('-', ' '), COLOR[scope.verdict])}")
    return lines


def bar(scope: LimitLine) -> str:
    """`[####==....]`: in use, asked for, free; `!` where it does not fit."""
    if scope.used is None or scope.peak is None:
        return "[" + "?" * BAR + "]"
    if not scope.hard:
        return "[" + "=" * (BAR - 1) + "!]" if scope.peak else "[" + "." * BAR + "]"
    hard = scope.hard.nano
    used = min(BAR, -(-scope.used.nano * BAR // hard))
    total = -(-(scope.used.nano + scope.peak.nano) * BAR // hard)
    if scope.used.nano + scope.peak.nano > hard:
        return "[" + ("#" * used + "=" * BAR)[: BAR - 1] + "!]"
    asked = max(0, min(BAR, total) - used)
    return "[" + ("#" * used + "=" * asked).ljust(BAR, ".") + "]"


def _finding(finding: Finding, paint: Paint) -> list[str]:
    color = {"error": "red", "warning": "yellow", "note": "cyan"}[finding.severity]
    place = f"  {paint(str(finding.where), 'dim')}" if finding.where.line is not None else ""
    lines = [f"{paint(finding.code, 'bold', color)} {line(finding.message)}{place}"]
    if finding.kubernetes:
        lines.append(f"      {paint('Kubernetes:', 'dim')} {line(finding.kubernetes)}")
    lines += [f"      {hint}" for hint in shown_lines(finding.hint)]
    return lines
