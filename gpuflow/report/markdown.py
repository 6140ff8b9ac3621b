"""Reports as Markdown, for pull requests: one report, or how a change moves it."""

from __future__ import annotations

from collections.abc import Sequence

from gpuflow.checker.report import LimitLine, Report
from gpuflow.checker.wording import amount
from gpuflow.errors import Finding
from gpuflow.printable import md_cell, md_code, md_code_cell, md_text, shown_lines
from gpuflow.quantity import Quantity

MARKS = {"always": "✅", "may-queue": "⏳", "unknown": "❔", "never": "❌"}


def markdown(reports: Sequence[Report]) -> str:
    """Verdict, table of scopes, findings."""
    return "\n".join(_report(report) for report in reports)


def _report(report: Report) -> str:
    lines = [f"### {MARKS[report.verdict]} {_subject(report)}: {_word(report.verdict)}", ""]
    if report.scopes:
        lines += ["| scope | resource | used | peak | hard | verdict |", "|---|---|--:|--:|--:|---|"]
        lines += [_row(scope) for scope in report.scopes]
        lines.append("")
    if report.findings:
        lines += [*(line for finding in report.findings for line in _finding(finding)), ""]
    lines += [f"Checked against {md_code(report.as_of)}. {report.assumes}", ""]
    return "\n".join(lines)


def _subject(report: Report) -> str:
    return f"{md_code(report.pipeline)} in {md_code(report.namespace)}"


def _word(verdict: str) -> str:
    return verdict.replace("-", " ")


def _row(scope: LimitLine) -> str:
    cells = (
        md_cell(f"{scope.kind} {scope.name}"),
        md_code_cell(scope.resource),
        *(None if each is None else amount(each) for each in (scope.used, scope.peak, scope.hard)),
        _word(scope.verdict),
    )
    return "| " + " | ".join("?" if cell is None else str(cell) for cell in cells) + " |"


def _finding(finding: Finding, since: str = "") -> list[str]:
    place = f" ({md_code(str(finding.where))})" if finding.where.line is not None else ""
    lines = [f"- {since}**{finding.code}** {md_text(finding.message)}{place}"]
    if finding.kubernetes:
        lines.append(f"  - Kubernetes: {md_code(finding.kubernetes)}")
    lines += [f"  - {md_text(line)}" for line in shown_lines(finding.hint) if line]
    return lines


def comparison(before: Report, after: Report) -> str:
    """How a change moves peak, quota and verdict."""
    moved = "" if before.namespace == after.namespace else f" (before: in {md_code(before.namespace)})"
    lines = [
        f"### {_subject(after)}{moved}: {MARKS[before.verdict]} {_word(before.verdict)} → "
        f"{MARKS[after.verdict]} {_word(after.verdict)}",
        "",
        "| scope | resource | peak before | peak after | change | left | verdict |",
        "|---|---|--:|--:|--:|--:|---|",
    ]
    old = {(scope.kind, scope.name, scope.resource): scope for scope in before.scopes}
    new = {(scope.kind, scope.name, scope.resource): scope for scope in after.scopes}
    for key in sorted({*old, *new}):
        lines.append(_moved(key, old.get(key), new.get(key)))
    lines.append("")
    known = {(finding.code, finding.message) for finding in before.findings}
    fresh = [finding for finding in after.findings if (finding.code, finding.message) not in known]
    kept = [finding for finding in after.findings if finding not in fresh and finding.severity != "note"]
    gone = [f for f in before.findings if (f.code, f.message) not in {(g.code, g.message) for g in after.findings}]
    lines += [line for finding in fresh for line in _finding(finding)]
    for finding in kept:  # what fails the check is told in full every time
        told = _finding(finding, "as before: ")
        lines += told if finding.severity == "error" else told[:1]
    lines += [f"- no longer: **{finding.code}** {md_text(finding.message)}" for finding in gone]
    lines += ["", f"Checked against {md_code(after.as_of)}. {after.assumes}", ""]
    return "\n".join(lines)


def _moved(key: tuple[str, str, str], old: LimitLine | None, new: LimitLine | None) -> str:
    scope = new or old
    assert scope is not None
    first = old.peak if old else Quantity.zero
    second = new.peak if new else Quantity.zero
    change = "?" if first is None or second is None else _signed(second - first)
    left = "?" if scope.used is None or second is None else str(scope.hard - scope.used - second)
    verdict = _word(new.verdict) if new else "not touched"
    cells = (md_cell(f"{key[0]} {key[1]}"), md_code_cell(key[2]), first, second, change, left, verdict)
    return "| " + " | ".join("?" if cell is None else str(cell) for cell in cells) + " |"


def _signed(amount: Quantity) -> str:
    return f"+{amount}" if amount > Quantity.zero else str(amount)
