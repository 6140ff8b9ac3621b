"""Reports for programs: SARIF for code scanning, JUnit for CI, GitHub's annotations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from gpuflow.checker.report import Report, amount
from gpuflow.core.codes import CODES
from gpuflow.core.errors import Finding
from gpuflow.core.printable import github_data, github_property, json_text, line, shown_lines, xml_attribute, xml_text
from gpuflow.core.version import __version__

_COMMANDS = {"error": "error", "warning": "warning", "note": "notice"}


def sarif(reports: Sequence[Report]) -> str:
    """SARIF 2.1.0: one result per finding, one rule per code."""
    findings = [finding for report in reports for finding in report.findings]
    codes = sorted({finding.code for finding in findings})
    driver = {"name": "gpuflow", "version": __version__, "rules": [_rule(code) for code in codes]}
    document = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": [_result(finding, codes) for finding in findings]}],
    }
    return json_text(document)


def _rule(code: str) -> dict[str, Any]:
    entry = CODES[code]
    return {
        "id": code,
        "shortDescription": {"text": entry.title},
        "fullDescription": {"text": entry.meaning},
        "help": {"text": entry.hint},
    }


def _result(finding: Finding, codes: list[str]) -> dict[str, Any]:
    result: dict[str, Any] = {
        "ruleId": finding.code,
        "ruleIndex": codes.index(finding.code),
        "level": finding.severity,
        "message": {"text": _finding_lines(finding)},
    }
    where = finding.where
    if where.file is not None:
        location: dict[str, Any] = {"artifactLocation": {"uri": quote(where.file.encode(errors="surrogateescape"))}}
        if where.line is not None:
            location["region"] = {"startLine": where.line, "startColumn": where.column or 1}
        result["locations"] = [{"physicalLocation": location}]
    return result


def _finding_lines(finding: Finding) -> str:
    """The message, Kubernetes' message and the hint; only the hint may have several lines."""
    said = [f"Kubernetes: {line(finding.kubernetes)}"] if finding.kubernetes else []
    return "\n".join([line(finding.message), *said, *shown_lines(finding.hint)])


def junit(reports: Sequence[Report], failing: set[str]) -> str:
    """JUnit XML: a suite per pipeline, a case per scope and one for the verdict."""
    suites = []
    for report in reports:
        words = "\n".join(f"{finding.code} {_finding_lines(finding)}" for finding in report.findings)
        cases = [_test_case("verdict", report.verdict, report.fails(failing), words)]
        for scope in report.scopes:
            title = f"{scope.kind} {scope.name} {scope.resource}"
            used, peak, hard = (amount(each, scope.resource) for each in (scope.used, scope.peak, scope.hard))
            text = f"used {used}, peak {peak}, hard {hard}"
            cases.append(_test_case(title, scope.verdict, scope.verdict in failing, text))
        failures = sum("<failure" in case for case in cases)
        name = xml_attribute(f"{report.pipeline} in {report.namespace}")
        suites.append(
            f'  <testsuite name={name} tests="{len(cases)}" failures="{failures}">\n{"".join(cases)}  </testsuite>\n'
        )
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<testsuites>\n{"".join(suites)}</testsuites>\n'


def _test_case(name: str, verdict: str, fails: bool, text: str) -> str:
    head = f'    <testcase classname="gpuflow.checker" name={xml_attribute(name)}'
    if not fails:
        return f"{head}/>\n"
    failure = f"<failure message={xml_attribute(verdict)}>{xml_text(text)}</failure>"
    return f"{head}>\n      {failure}\n    </testcase>\n"


def github(reports: Sequence[Report], failing: set[str]) -> str:
    """Workflow commands that GitHub shows as annotations on the pull request's lines."""
    commands = []
    for report in reports:
        for finding in report.findings:
            place = finding.where
            fields = {"file": place.file, "line": place.line, "col": place.column, "title": f"gpuflow {finding.code}"}
            known = {key: str(value) for key, value in fields.items() if value is not None}
            shown = ",".join(f"{key}={github_property(value)}" for key, value in known.items())
            commands.append(f"::{_COMMANDS[finding.severity]} {shown}::{github_data(_finding_lines(finding))}\n")
        level = "error" if report.fails(failing) else "notice" if report.verdict == "always" else "warning"
        summary = github_data(f"{report.pipeline} in {report.namespace}: {report.verdict}")
        commands.append(f"::{level} title=gpuflow::{summary}\n")
    return "".join(commands)
