"""A report for people: text for the terminal, and Markdown for pull requests.

The text has the verdict, the line that matters, and bars for used / peak / hard. The Markdown shows one report, or how
a change moves it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gpuflow.checker.report import SEPARATOR, LimitLine, Report, amount
from gpuflow.core.errors import Finding
from gpuflow.core.printable import line, md_cell, md_code, md_code_cell, md_text, shown_lines
from gpuflow.quantity import Quantity

Paint = Callable[..., str]
COLOR = {"always": "green", "may-queue": "yellow", "unknown": "yellow", "never": "red"}
BAR = 10
MOST_IN_OVERVIEW = 80
"""Characters of a finding where each report has one line."""
SCOPE_WORDS = {"ResourceQuota": "quota", "ClusterQueue": "queue", "Nodes": "nodes"}
"""What the kinds of scopes are called in a line."""


def plain_text(text: str, *styles: str) -> str:
    """No color."""
    return text


def render(report: Report, paint: Paint = plain_text) -> str:
    verdict = paint(report.verdict.replace("-", " ").upper(), "bold", COLOR[report.verdict])
    noun = "namespaces" if SEPARATOR in report.namespace else "namespace"
    lines = [f"{line(report.pipeline)} in {noun} {report.namespace}: {verdict}", ""]
    lines += _scopes(report.scopes, paint)
    if report.scopes:
        lines.append("")
    for finding in report.findings:
        lines += [*_text_finding(finding, paint), ""]
    is_said = any(finding.code == "GF747" for finding in report.findings)
    if report.engine == "none" and not report.by_itself and not is_said:
        lines.append(paint("Counts no engine's own containers and pods; --engine adds them.", "dim"))
    lines.append(paint(f"Checked against {line(report.as_of + report.with_brought)}. {report.assumes}", "dim"))
    return "\n".join(lines) + "\n"


def overview(reports: Sequence[Report], paint: Paint = plain_text) -> str:
    """A row for each of several reports: verdict, namespace, document, and the finding that weighs most."""
    rows = [
        (_verdict_text(each.verdict), each.namespace, line(_document(each)), line(_first_finding(each)))
        for each in reports
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    written = []
    for row, report in zip(rows, reports, strict=True):
        verdict, *cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        written.append("  ".join([paint(verdict, COLOR[report.verdict]), *cells]).rstrip())
    return "\n".join(written) + "\n"


def _document(report: Report) -> str:
    return report.pipeline if report.kind == "Pipeline" else f"{report.kind} {report.pipeline}"


def _first_finding(report: Report) -> str:
    """The first of the gravest findings, short."""
    for severity in ("error", "warning"):
        for each in report.findings:
            if each.severity == severity:
                text = f"{each.code} {each.message}"
                return text if len(text) <= MOST_IN_OVERVIEW else f"{text[: MOST_IN_OVERVIEW - 1]}…"
    return ""


def _scopes(scopes: tuple[LimitLine, ...], paint: Paint) -> list[str]:
    rows = [
        (
            line(f"{SCOPE_WORDS.get(scope.kind, scope.kind)} {scope.name}"),
            line(scope.resource),
            f"used {amount(scope.used, scope.resource)}",
            f"peak {amount(scope.peak, scope.resource)}",
            f"hard {amount(scope.hard, scope.resource)}",
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


def _text_finding(finding: Finding, paint: Paint) -> list[str]:
    color = {"error": "red", "warning": "yellow", "note": "cyan"}[finding.severity]
    place = f"  {paint(str(finding.where), 'dim')}" if finding.where.line is not None else ""
    lines = [f"{paint(finding.code, 'bold', color)} {line(finding.message)}{place}"]
    if finding.kubernetes:
        lines.append(f"      {paint('Kubernetes:', 'dim')} {line(finding.kubernetes)}")
    lines += [f"      {hint}" for hint in shown_lines(finding.hint)]
    return lines


MARKS = {"always": "✅", "may-queue": "⏳", "unknown": "❔", "never": "❌"}


def markdown(reports: Sequence[Report]) -> str:
    """Verdict, table of scopes, findings; of several reports first a table of all."""
    sections = [_report(report) for report in reports]
    if len(reports) > 1:
        rows = [
            "| verdict | namespace | document | finding |",
            "|---|---|---|---|",
            *(
                f"| {MARKS[each.verdict]} {_verdict_text(each.verdict)} | {md_code_cell(each.namespace)} | "
                f"{md_code_cell(_document(each))} | {md_cell(_first_finding(each))} |"
                for each in reports
            ),
        ]
        sections.insert(0, "\n".join(rows) + "\n")
    return "\n".join(sections)


def _report(report: Report) -> str:
    lines = [f"### {MARKS[report.verdict]} {_report_title(report)}: {_verdict_text(report.verdict)}", ""]
    if report.scopes:
        lines += ["| scope | resource | used | peak | hard | verdict |", "|---|---|--:|--:|--:|---|"]
        lines += [*map(_row, report.scopes), ""]
    if report.findings:
        lines += [*(line for finding in report.findings for line in _markdown_finding(finding)), ""]
    lines += [f"Checked against {md_code(report.as_of)}{md_text(report.with_brought)}. {report.assumes}", ""]
    return "\n".join(lines)


def _report_title(report: Report) -> str:
    return f"{md_code(report.pipeline)} in {md_code(report.namespace)}"


def _verdict_text(verdict: str) -> str:
    return verdict.replace("-", " ")


def _row(scope: LimitLine) -> str:
    cells = (
        md_cell(f"{scope.kind} {scope.name}"),
        md_code_cell(scope.resource),
        *(amount(each, scope.resource) for each in (scope.used, scope.peak, scope.hard)),
        _verdict_text(scope.verdict),
    )
    return f"| {' | '.join(cells)} |"


def _markdown_finding(finding: Finding, since: str = "") -> list[str]:
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
        f"### {_report_title(after)}{moved}: {MARKS[before.verdict]} {_verdict_text(before.verdict)} → "
        f"{MARKS[after.verdict]} {_verdict_text(after.verdict)}",
        "",
        "| scope | resource | peak before | peak after | change | left | verdict |",
        "|---|---|--:|--:|--:|--:|---|",
    ]
    old = {(scope.kind, scope.name, scope.resource): scope for scope in before.scopes}
    new = {(scope.kind, scope.name, scope.resource): scope for scope in after.scopes}
    lines += [*(_change_row(key, old.get(key), new.get(key)) for key in sorted({*old, *new})), ""]
    known = {(finding.code, finding.message) for finding in before.findings}
    fresh = [finding for finding in after.findings if (finding.code, finding.message) not in known]
    kept = [finding for finding in after.findings if finding not in fresh and finding.severity != "note"]
    gone = [f for f in before.findings if (f.code, f.message) not in {(g.code, g.message) for g in after.findings}]
    lines += [line for finding in fresh for line in _markdown_finding(finding)]
    for finding in kept:  # what fails the check is told in full every time
        told = _markdown_finding(finding, "as before: ")
        lines += told if finding.severity == "error" else told[:1]
    lines += [f"- no longer: **{finding.code}** {md_text(finding.message)}" for finding in gone]
    lines += ["", f"Checked against {md_code(after.as_of)}{md_text(after.with_brought)}. {after.assumes}", ""]
    return "\n".join(lines)


def _change_row(key: tuple[str, str, str], old: LimitLine | None, new: LimitLine | None) -> str:
    scope = new or old
    assert scope is not None
    first = old.peak if old else Quantity.zero
    second = new.peak if new else Quantity.zero
    moved = None if first is None or second is None else second - first
    left = None if scope.used is None or second is None else scope.hard - scope.used - second
    amounts = [amount(each, key[2]) for each in (first, second, moved, left)]
    if moved is not None and moved > Quantity.zero:
        amounts[2] = f"+{amounts[2]}"
    verdict = _verdict_text(new.verdict) if new else "not touched"
    return f"| {' | '.join([md_cell(f'{key[0]} {key[1]}'), md_code_cell(key[2]), *amounts, verdict])} |"
