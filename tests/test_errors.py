"""What a message looks like, and which word it suggests."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuflow.core.errors import (
    EnvironmentFailure,
    Finding,
    GpuflowError,
    Problem,
    Rule,
    Where,
    did_you_mean,
    fail,
    rule,
)
from tests.conftest import ROOT


def test_a_finding_is_one_line_with_its_place_then_the_way_out() -> None:
    finding = Finding(
        "GF112", "request above limit", Where("train.yaml", 14, 13, "train"), "raise one\nor lower the other"
    )
    assert finding.render() == ("train.yaml:14:13: GF112 request above limit\n    raise one\n    or lower the other")


@pytest.mark.parametrize(
    ("where", "shown"),
    [
        (Where(), "<input>"),
        (Where("a.yaml"), "a.yaml"),
        (Where("a.yaml", 3), "a.yaml:3:1"),
        (Where("a.yaml", 3, 7), "a.yaml:3:7"),
        (Where(None, 3, 7), "<input>:3:7"),
    ],
)
def test_a_place_says_as_much_as_is_known(where: Where, shown: str) -> None:
    assert str(where) == shown


def test_kubernetes_own_words_stand_between_the_message_and_the_way_out() -> None:
    finding = Finding("GF501", "never", Where("a.yaml"), "ask for less", kubernetes="exceeded quota: q")
    assert finding.render().splitlines() == [
        "a.yaml: GF501 never",
        "    Kubernetes says: exceeded quota: q",
        "    ask for less",
    ]


def test_a_finding_as_json_has_the_contracts_fields() -> None:
    document = Finding("GF101", "m", Where("a.yaml", 1, 2, "s"), "h", "warning", "k").document()
    assert document == {
        "code": "GF101",
        "severity": "warning",
        "where": {"file": "a.yaml", "line": 1, "column": 2, "step": "s"},
        "message": "m",
        "hint": "h",
        "kubernetes": "k",
    }


@given(st.text())
def test_no_message_can_break_the_line_or_reach_the_terminal_raw(text: str) -> None:
    (line,) = Finding("GF101", text).render().split("\n")
    assert line.isprintable()
    assert line.startswith("<input>: GF101 ")


@rule("GF551")
def empty_words(text: str) -> Iterator[Problem]:
    """A rule over words."""
    if not text:
        yield Problem("no words", Where("a"), "write some", "Required value")


def test_what_a_rule_finds_gets_its_code_and_its_severity() -> None:
    assert list(empty_words("")) == [
        Finding("GF551", "no words", Where("a"), "write some", "warning", "Required value")
    ]
    assert list(empty_words("x")) == []


def test_a_rule_may_say_whole_findings_of_the_codes_it_declares() -> None:
    found = [Finding("GF764", "m", severity="note"), Finding("GF765", "m")]
    assert list(Rule(lambda _: found, ("GF764", "GF765"), "warning")(None)) == found
    assert list(Rule(lambda _: found, (), "warning")(None)) == found
    with pytest.raises(AssertionError, match="says GF765"):
        list(Rule(lambda _: found, ("GF764",), "warning")(None))


def test_findings_get_a_file_only_when_they_have_none() -> None:
    assert Finding("GF101", "m").in_file("a.yaml").where.file == "a.yaml"
    assert Finding("GF101", "m", Where("b.yaml")).in_file("a.yaml").where.file == "b.yaml"


def test_an_error_carries_all_its_findings_and_the_exit_code() -> None:
    error = GpuflowError([Finding("GF101", "one"), Finding("GF102", "two")])
    assert (len(error.findings), error.exit_code) == (2, 2)
    assert str(error) == "<input>: GF101 one\n<input>: GF102 two"
    assert EnvironmentFailure(Finding("GF901", "no")).exit_code == 3
    assert fail("GF101", "m", hint="h").findings == (Finding("GF101", "m", Where(), "h"),)


@pytest.mark.parametrize(
    ("word", "known", "hint"),
    [
        ("comand", ["command", "args"], 'did you mean "command"?'),
        ("shardCount", ["shard_count", "x"], 'did you mean "shard_count"?'),
        ("zzz", ["a", "b"], "known here: a, b"),
        ("zzz", [f"name{i}" for i in range(30)], None),
        ("x", [], None),
    ],
)
def test_a_suggestion_is_close_or_the_list_is_short(word: str, known: list[str], hint: str | None) -> None:
    assert did_you_mean(word, known) == hint


def test_among_very_many_names_the_close_one_is_still_found() -> None:
    names = [f"step-{number}" for number in range(20_000)]
    assert '"step-1234"' in (did_you_mean("step-1234x", names) or "")
    assert did_you_mean("zzz", names) is None


@given(st.text(min_size=4, max_size=20), st.data())
def test_one_wrong_letter_is_always_forgiven(word: str, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(word) - 1))
    wrong = word[:at] + "#" + word[at + 1 :]
    assert f'"{word}"' in (did_you_mean(wrong, [word, "entirely different"]) or "")


@pytest.mark.parametrize("engine", ["argo", "kubeflow"])
def test_an_engine_that_is_not_installed_is_named_with_the_command_that_installs_it(engine: str) -> None:
    hidden = "import sys; sys.modules.update(dict.fromkeys(('hera', 'kfp', 'google.protobuf')))"
    code = f"{hidden}; import gpuflow; gpuflow.{engine}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert "GF901" in done.stderr
    assert f'pip install "gpuflow[{engine}] @ git+URL@COMMIT"' in done.stderr
