"""The parts around the judge: what counts as a fault, how advice is read, how cases are drawn and made small."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from proofs.checker.advice import lines
from proofs.checker.case import ENGINES, Case
from proofs.checker.comparing import fault
from proofs.checker.draw_case import TWISTS
from proofs.checker.draw_case import case as drawn_case
from proofs.checker.judge import Truth
from proofs.checker.shrinking import shrunk
from proofs.checker.worlds import fingerprint, questions, refusals


@pytest.mark.parametrize(
    ("verdict", "worlds", "found"),
    [
        ("always", ("always",), None),
        ("always", ("may-queue",), "wrong always"),
        ("always", ("always", "may-queue"), "wrong always"),
        ("never", ("never", "always"), "wrong never"),
        ("may-queue", ("never", "always"), None),
        ("unknown", ("never", "always"), None),
        ("unknown", ("always", "always"), "needless unknown"),
        ("unknown", ("may-queue",), "needless unknown"),
        ("may-queue", ("always",), "needless may queue"),
        ("may-queue", ("never",), "needless may queue"),
        ("always", (None,), None),
    ],
)
def test_what_counts_as_a_fault(verdict: str, worlds: tuple[str | None, ...], found: str | None) -> None:
    assert fault(verdict, Truth(worlds)) == found


def test_what_is_not_shown_makes_nothing_needless_and_nothing_right() -> None:
    assert fault("unknown", Truth(("always",)), is_open=True) is None
    assert fault("always", Truth(("never",)), is_open=True) == "wrong always"


def asked(**steps: Any) -> Case:
    return Case(
        "by hand", (), {"steps": {name: {"command": ["x"], **step} for name, step in steps.items()}}, "argo", ()
    )


def report(message: str, hint: str) -> Any:
    return SimpleNamespace(findings=[SimpleNamespace(message=message, hint=hint)])


def test_every_line_of_advice_is_followed() -> None:
    case = asked(a={"gpu": "a100-80gb x 8"}, b={"needs": ["a"]})
    hint = (
        "one node here holds at most 4 of a100-80gb for this step: ask for 4 in each pod\n"
        "fits here, with as much GPU memory: h100-80gb (79.65 GiB), 3g.40gb of a100-80gb (39.5 GiB)\n"
        "always admitted with parallel: 2\nwith parallel: 3 these nodes always have room"
    )
    found = {line.text: line for line in lines(case, report('step "a" fits on no node', hint))}
    assert found["always admitted with parallel: 2"].followed.pipeline["parallel"] == 2
    assert found["always admitted with parallel: 2"].whole
    assert not found["with parallel: 3 these nodes always have room"].whole
    assert found["ask for 4 in each pod"].followed.pipeline["steps"] == {
        "a": {"command": ["x"], "gpu": "a100-80gb x 4"}
    }
    assert found["h100-80gb (79.65 GiB)"].followed.pipeline["steps"]["a"]["gpu"] == "h100-80gb x 8"
    slices = {"profile": "3g.40gb", "model": "a100-80gb", "count": 8}
    assert found["3g.40gb of a100-80gb (39.5 GiB)"].followed.pipeline["steps"]["a"]["mig"] == slices
    assert len(found) == 5


def test_a_case_is_the_same_whenever_it_is_drawn_and_read() -> None:
    for number in range(30):
        case = drawn_case(f"3/{number}")
        assert drawn_case(f"3/{number}").written() == case.written()
        assert Case.read(case.written()) == replace(case)


def test_every_family_and_engine_is_drawn() -> None:
    families: Counter[str] = Counter()
    engines: Counter[str] = Counter()
    for number in range(1500):
        case = drawn_case(f"4/{number}")
        families.update(case.families)
        engines.update([case.engine])
    # 200 of 20,000 are 1 %.
    assert min(families[name] for name in TWISTS) >= 15 and set(families) >= set(TWISTS)
    assert min(engines[name] for name in ENGINES) >= 150


def test_questions_differ_when_what_decides_differs() -> None:
    case = next(each for each in map(drawn_case, ("5/1", "5/2", "5/3", "5/4")) if not refusals(each))
    asked = questions(case)
    same, other = questions(case), questions(case)
    same[0]["units"][0]["pod"]["spec"]["containers"][0]["image"] = "another"
    other[0]["units"][0]["pod"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "77"}}
    assert fingerprint(asked) == fingerprint(same) != fingerprint(other)


def test_a_case_is_made_small() -> None:
    case = next(each for each in (drawn_case(f"6/{number}") for number in range(50)) if len(each.pipeline["steps"]) > 2)
    small = shrunk(case, lambda smaller: "s1" in smaller.pipeline["steps"], most=500)
    assert list(small.pipeline["steps"]) == ["s1"] and "needs" not in small.pipeline["steps"]["s1"]
    assert sum(each["kind"] == "Node" for each in small.shown) == 1
