"""Kubernetes rewrites `$(VAR)` and `$$`; what the user wrote must arrive unchanged.

Tests gpuflow/kubernetes/expansion.py and gpuflow/pod/spelling.py.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuflow.kubernetes.expansion import escape
from gpuflow.pod.spelling import spell_text
from gpuflow.spec.text import ParamRef, Ref, join

KNOWN = {"HOME": "/root", "A": "$(HOME)", "": "empty"}


def expand(text: str, *, old: bool = False) -> str:
    """The kubelet's rule, byte by byte: after a `$`, `$` is itself, `(NAME)` a variable, anything else is kept.

    Releases before 1.36 keep the one byte after the `$`, written as a letter of its own, which garbles `$é`.
    """
    raw, result, at = text.encode(), b"", 0
    while at < len(raw):
        following = raw[at + 1 : at + 2]
        if raw[at : at + 1] != b"$" or not following:
            result += raw[at : at + 1]
            at += 1
        elif following == b"$":
            result += b"$"
            at += 2
        elif following == b"(":
            end = raw.find(b")", at + 2)
            if end < 0:  # an open reference is kept, and reading goes on after `$(`
                result += b"$("
                at += 2
            else:
                name = raw[at + 2 : end].decode()
                result += KNOWN.get(name, f"$({name})").encode()
                at = end + 1
        else:
            result += b"$" + (chr(following[0]).encode() if old else following)
            at += 2
    return result.decode("utf-8", "surrogateescape")


dollars = st.text("$()AHOME x{é€", max_size=14)


@given(st.text() | dollars)
def test_what_the_user_wrote_arrives_unchanged_on_old_and_new_kubelets(text: str) -> None:
    assert expand(escape(text)) == text
    assert expand(escape(text), old=True) == text


def test_the_old_kubelet_of_this_test_garbles_what_is_not_escaped() -> None:
    assert expand("5$é", old=True) != "5$é"
    assert expand("$(HOME) $$") == "/root $"


@given(dollars, st.text("()AHOME x", max_size=8), dollars)
def test_it_also_arrives_unchanged_around_a_value_only_known_at_run_time(before: str, value: str, after: str) -> None:
    class Engine:
        """Puts the value in as it is, as engines do."""

        def literal(self, text: str) -> str:
            return text

        def reference(self, ref: Ref) -> str:
            return value

    assert expand(spell_text(join(before, ParamRef("x"), after), Engine())) == before + value + after


@given(dollars)
def test_text_before_a_value_that_begins_with_a_bracket_is_safe(before: str) -> None:
    assert expand(escape(before, glued=True) + "(HOME)") == before + "(HOME)"


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("cost: $5", "cost: $5"),
        ("$(HOME)", "$$(HOME)"),
        ("$$", "$$$$"),
        ("${HOME}", "${HOME}"),
        ("a$", "a$"),
        ("$$(date)", "$$$$(date)"),
        ("no dollars", "no dollars"),
        ("5$é", "5$$é"),
    ],
)
def test_only_what_kubernetes_would_touch_is_doubled(text: str, safe: str) -> None:
    assert escape(text) == safe


def test_a_dollar_before_a_reference_is_doubled_because_nobody_knows_what_follows() -> None:
    assert escape("a$", glued=True) == "a$$"
