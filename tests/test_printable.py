"""Text leaves through its door: what a program reads is the same, and what people see hides and commands nothing."""

from __future__ import annotations

import ast
import io
import json
import re
import tokenize
import unicodedata
from xml.etree import ElementTree
from xml.sax.saxutils import escape, quoteattr

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from gpuflow.core import printable
from gpuflow.core.emit import emit
from gpuflow.core.printable import HIDDEN_CHARACTERS
from gpuflow.targets.airflow.python_source import source_text

NASTY = (
    "\x00", "\x1b[31m", "\r", "\n", "\t", "\x7f", "\x85", "\xa0", "\xad", "\u034f", "\u061c", "\u115f", "\u1160",
    "\u180e", "\u200b", "\u200d", "\u200f", "\u2028", "\u2029", "\u202e", "\u2060", "\u2066", "\u2069", "\u2800",
    "\u3164", "\ufe0f", "\ufeff", "\uffa0", "\ufffe", "\U000e0041", "\U000e0100", "\U0001fffe", "\U0010fffd",
    "::error::", "\n::stop-commands::x\n", "##[command]", "##vso[task]", "👩\u200d💻", "⚠\ufe0f", "שלום", "　", "{{",
    '"', "'", "\\", "`", "``", "|", "<img>", "[a](b)", "*", "_a_", "@team", "&amp;", "coding: utf-7 ", "vim: x:",
    "-*-", "# ", "- ", "https://e.x", "HTTP://e.x", "www.e.x", "ftp://e.x", "mailto:a@e.co", "a@-e.co",
    "#1", "GH-1", "<",
)  # fmt: skip
NASTY_TEXT = st.lists(st.sampled_from(NASTY) | st.text(max_size=3), max_size=8).map("".join)
READABLE = NASTY_TEXT.map(lambda text: re.sub("[\ud800-\udfff]", "", text))
"""What YAML can carry: no half of a character."""


def commanded(text: str) -> list[str]:
    """The lines that a CI system would obey, as GitHub's runner looks for them: `::` after trimming, `##[` anywhere."""
    return [line for line in text.split("\n") if line.strip().startswith("::") or re.search(r"##[a-z]*\[", line)]


@pytest.mark.parametrize("category", ["Cc", "Cf", "Cs", "Co", "Zl", "Zp", "Zs"])
def test_every_character_of_a_hidden_category_is_hidden(category: str) -> None:
    every = {chr(code) for code in range(0x110000) if unicodedata.category(chr(code)) == category}
    assert {letter for letter in every if not HIDDEN_CHARACTERS.fullmatch(letter)} == every & {" ", "\u3000"}


def test_what_is_hidden_is_of_these_categories_named_or_no_character() -> None:
    """So that no letter, digit or sign of any script is ever taken for hidden."""
    others = {
        f"{code:04X}"
        for code in range(0x110000)
        if HIDDEN_CHARACTERS.fullmatch(chr(code))
        and unicodedata.category(chr(code)) not in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp", "Zs", "Cn")
    }
    selectors = {f"{code:04X}" for code in (*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))}
    fillers = {"034F", "115F", "1160", "17B4", "17B5", "180B", "180C", "180D", "180F", "2800", "3164", "FFA0", "FFFC"}
    assert others == selectors | fillers | {"16FE4", "1D159"}


@given(NASTY_TEXT)
@example("\u3164\ufe0f")
def test_a_line_for_people_is_one_line_in_which_nothing_hides_and_nothing_commands(text: str) -> None:
    for shown in (printable.line(text), *printable.lines(text).split("\n"), *printable.shown_lines(text)):
        assert not HIDDEN_CHARACTERS.search(shown)
        assert not commanded(shown)
    assert printable.line(printable.line(text)) == printable.line(text)


def test_gpuflows_own_colors_pass_and_nothing_else_does() -> None:
    assert printable.colored_lines("\x1b[1mGF100\x1b[0m a\x1b[2Jb\u202e\n ::x") == (
        "\x1b[1mGF100\x1b[0m a\\x1b[2Jb\\u202e\n \\x3a:x"
    )


@given(READABLE)
def test_a_value_in_yaml_is_the_same_for_the_engine_and_visible_for_the_reviewer(text: str) -> None:
    for data in (text, {text: text}, [{"script": text + "\n"}]):
        written = emit(data)
        assert yaml.safe_load(written) == data
        assert not HIDDEN_CHARACTERS.search(written.replace("\n", ""))
        assert not commanded(written)


@given(NASTY_TEXT)
def test_a_value_in_python_is_the_same_for_the_engine_and_visible_for_the_reviewer(text: str) -> None:
    for data in (text, {text: text}, [text * 40]):
        written = source_text(data)
        assert ast.literal_eval(written) == data
        assert not HIDDEN_CHARACTERS.search(written.replace("\n", ""))
        assert not commanded(written)


@given(NASTY_TEXT)
def test_a_value_in_json_is_the_same_for_the_program(text: str) -> None:
    written = printable.json_text({text: [text]})
    assert json.loads(written) == {text: [text]}
    assert not HIDDEN_CHARACTERS.search(written.replace("\n", ""))
    assert not commanded(written)


@given(st.lists(NASTY_TEXT, min_size=1, max_size=3))
@example(["from x coding: utf-7 .yaml"])
@example(["CODING=utf-7"])
def test_a_comment_is_only_a_comment(texts: list[str]) -> None:
    written = printable.comment(texts)
    assert [line[:2] for line in written.splitlines()] == ["# "] * len(texts)
    assert ast.parse(written + "x = 1\n").body[0].lineno == len(texts) + 1
    assert yaml.safe_load(written + "x: 1\n") == {"x": 1}
    assert tokenize.detect_encoding(io.BytesIO(written.encode()).readline)[0] == "utf-8"
    assert not HIDDEN_CHARACTERS.search(written.replace("\n", ""))
    assert not commanded(written)


@given(NASTY_TEXT)
def test_xml_is_well_formed_whatever_it_holds(text: str) -> None:
    element = ElementTree.fromstring(f"<a b={printable.xml_attribute(text)}>{printable.xml_text(text)}</a>")
    assert element.get("b") == printable.line(text)
    assert (element.text or "") == printable.lines(text)


@given(NASTY_TEXT)
@example("\"'&<>")
@example('say "hi" & <go>')
@example("it's 1 > 0 &quot;")
def test_xml_is_written_as_the_standard_library_writes_it(text: str) -> None:
    assert printable.xml_text(text) == escape(printable.lines(text))
    assert printable.xml_attribute(text) == quoteattr(printable.line(text))


@given(NASTY_TEXT)
def test_a_workflow_command_is_one_line_and_its_property_ends_where_it_should(text: str) -> None:
    written = f"::error file={printable.github_property(text)},line=1::{printable.github_data(text)}"
    assert "\n" not in written
    assert not HIDDEN_CHARACTERS.search(written)
    head, _, data = written.removeprefix("::error ").partition("::")
    assert [part.partition("=")[0] for part in head.split(",")] == ["file", "line"]
    assert data.replace("%0A", "\n").replace("%25", "%") == printable.lines(text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain snake_case -> 4 x 2", "plain snake_case -> 4 x 2"),
        ("set `parallel: 4` in it", "set `parallel: 4` in it"),
        ("a ` b", "a \\` b"),
        ("`a ``b` ``", "```a ``b``` \\`\\`"),
        ("<img src=x> [a](b) *b* _i_ ~s~", "&lt;img src=x> \\[a](b) \\*b\\* \\_i\\_ \\~s\\~"),
        ("&lt; & @team me@host", "&amp;lt; &amp; @<!-- -->team me@<!-- -->host"),
        ("https://e.x<h1> www.e.x #1", "https:<!-- -->//e.x&lt;h1> www<!-- -->.e.x #<!-- -->1"),
        ("# heading", "\\# heading"),
        ("- item", "\\- item"),
        ("1. item", "1\\. item"),
        ("> said", "\\> said"),
        ("a\nb", "a\\\\nb"),
    ],
)
def test_text_in_markdown_is_only_text(text: str, shown: str) -> None:
    assert printable.md_text(text) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [("a", "`a`"), ("a`b", "``a`b``"), ("``a", "``` ``a ```"), ("a`", "`` a` ``"), (" a ", "`  a  `"), ("", "")],
)
def test_code_in_markdown_has_a_longer_fence_than_it_holds(text: str, shown: str) -> None:
    assert printable.md_code(text) == shown


@given(NASTY_TEXT)
def test_a_cell_in_markdown_does_not_end_early(text: str) -> None:
    for cell in (printable.md_cell(text), printable.md_code_cell(text)):
        assert not re.search(r"(?<!\\)\|", cell)
        assert "\n" not in cell


@given(NASTY_TEXT)
@example("https://e.x<h1>")
@example("WWW.e.x`<h1>")
def test_nothing_outside_of_code_is_html_or_an_address(text: str) -> None:
    """GitHub links addresses by itself, and ends such a link at a `<`: a backslash before it is part of the link."""
    for written in (printable.md_text(text), printable.md_cell(text)):
        plain = re.sub(r"(?<![\\`])(`+)(?!`).+?(?<!`)\1(?!`)", "", written) if "`" in text else written
        assert "<" not in plain.replace("<!-- -->", "")
        assert not re.search(r"://|www\.|(mailto|xmpp):(?!<!)|@(?!<!)|(#|\bGH-)\d", plain, re.IGNORECASE)


@given(NASTY_TEXT)
def test_markdown_read_by_a_parser_holds_the_text_and_nothing_else(text: str) -> None:
    markdown_it = pytest.importorskip("markdown_it")
    parser = markdown_it.MarkdownIt("gfm-like", {"linkify": False})
    shown = printable.line(text)

    def spans(written: str) -> list[tuple[str, str]]:
        (inline,) = [token for token in parser.parse(f"- **GF1** x{written}x") if token.type == "inline"]
        found = [(part.type, part.content) for part in inline.children if part.content not in ("", "<!-- -->")]
        kinds = {part.type for part in inline.children}
        assert kinds <= {"text", "text_special", "strong_open", "strong_close", "code_inline", "html_inline"}
        assert [content for kind, content in found if kind == "html_inline"] == []
        return found[1:]

    if shown.strip():
        ((_, first), (kind, code), (_, last)) = spans(printable.md_code(text))
        assert (first, kind, code, last) == (" x", "code_inline", shown, "x")
    cell = "".join(content for _, content in spans(printable.md_cell(text).replace("\\|", "|")))
    assert cell == f" x{shown.strip()}x"
    spans(printable.md_text(text))
