"""Rules are values: each is listed in its family, says codes that exist, and is found by its code.

Tests gpuflow/cli/explain.py, gpuflow/checker/rules/__init__.py and gpuflow/targets/capabilities.py.
"""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from operator import attrgetter
from typing import Any

import pytest

from gpuflow.checker.rules import RULES as CHECK_RULES
from gpuflow.checker.rules import placement
from gpuflow.cli.explain import places_of_rules
from gpuflow.core.codes import CODES
from gpuflow.core.errors import Finding, Problem, Where
from gpuflow.targets.capabilities import Loss, RefusalRule
from tests.conftest import ROOT

PACKAGE = ROOT / "gpuflow"
FAMILIES = {
    "pipeline": "gpuflow.spec.rules.remarks:REMARKS",
    "pod": "gpuflow.pod.notes:NOTES",
    "plan": "gpuflow.demands.of_pipeline:RULES",
    "document": "gpuflow.readers.findings.rules:RULES",
    "check": "gpuflow.checker.rules:RULES",
    "argo's refusals": "gpuflow.targets.argo.refusals:REFUSALS",
    "argo's notes": "gpuflow.targets.argo.refusals:RULES",
    "airflow's refusals": "gpuflow.targets.airflow.refusals:REFUSALS",
    "airflow's notes": "gpuflow.targets.airflow.refusals:NOTES",
    "kubeflow's refusals": "gpuflow.targets.kubeflow.refusals:REFUSALS",
    "kubeflow's refusals beside alerts": "gpuflow.targets.kubeflow:BESIDE_ALERTS",
    "kubeflow's support": "gpuflow.targets.kubeflow:SUPPORT",
    "kubeflow's notes": "gpuflow.targets.kubeflow.refusals:NOTES",
}
"""Where the rules over each kind of context are listed, in the order of a report."""
DECORATORS = ("rule", "check_rule", "refusal")


def rules_in(family: str) -> tuple[Any, ...]:
    module, _, names = FAMILIES[family].partition(":")
    found: tuple[Any, ...] = attrgetter(names)(importlib.import_module(module))
    return found


EVERY = [each for family in FAMILIES for each in rules_in(family)]


def decorated() -> Iterator[tuple[str, str]]:
    """The module and the name of every function that a decorator makes a rule."""
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if "rule(" in text or "refusal(" in text else ():
            for each in node.decorator_list if isinstance(node, ast.FunctionDef) else ():
                if isinstance(each, ast.Call) and isinstance(each.func, ast.Name) and each.func.id in DECORATORS:
                    module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
                    yield module, node.name


def test_every_rule_in_the_source_is_in_exactly_one_family() -> None:
    """What no family lists would never be said."""
    assert sorted(decorated()) == sorted((each.find.__module__, each.find.__qualname__) for each in EVERY)


def test_the_codes_of_rules_are_in_the_table() -> None:
    assert {code for each in EVERY for code in each.codes} <= set(CODES)


def test_what_a_refusal_finds_may_be_left_out_or_not_as_it_says() -> None:
    """Losses that say so themselves are passed on."""
    found = [Problem("m", Where("a"), "h"), Finding("GF313", "m"), Loss("m", Where("a"), None, "params")]
    assert [
        (each.code, each.optional) for each in RefusalRule(lambda _: found, ("GF306", "GF313", "GF301"), False)(None)
    ] == [
        ("GF306", False),
        ("GF313", False),
        ("GF301", True),
    ]
    with pytest.raises(AssertionError, match="says GF313"):
        list(RefusalRule(lambda _: found, ("GF306",), optional=True)(None))


def test_an_error_of_a_check_has_a_verdict() -> None:
    assert [each.find.__name__ for each in CHECK_RULES if each.severity == "error" and each.verdict is None] == []


def test_placement_declares_the_codes_that_queues_and_nodes_say() -> None:
    texts = [path.read_text(encoding="utf-8") for path in (PACKAGE / "checker" / "pipeline").rglob("*.py")]
    said = {code for text in texts for code in re.findall(r'"(GF\d{3})"', text)}
    assert said - {"GF403"} == set(placement.codes)  # that one stops a check


@pytest.mark.parametrize("code", sorted({code for each in EVERY for code in each.codes}))
def test_a_rule_is_found_by_its_code(code: str) -> None:
    """As `gpuflow explain` does, in the source; and as a test does, among the families."""
    named = sorted(each.find.__name__ for each in EVERY if code in each.codes)
    assert sorted(place.partition(" ")[2] for place in places_of_rules(code)) == named


def test_the_place_of_a_rule_is_the_line_of_its_function() -> None:
    for place in places_of_rules("GF561"):
        file, line, name = re.split("[: ]", place)
        assert (ROOT / file).read_text(encoding="utf-8").splitlines()[int(line) - 1].startswith(f"def {name}(")
