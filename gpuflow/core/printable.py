r"""Text that leaves gpuflow: one door for each medium.

File names, names in manifests and every other text of a stranger may hold characters that nobody sees, that change
the order of what is seen, or that a terminal, a CI system or an engine obeys. No text is written past these doors:

| medium                                   | door                                              |
|------------------------------------------|---------------------------------------------------|
| terminal, log                            | `line`, `lines`, `shown_lines`, `colored_lines`   |
| string literal in YAML and Python        | `escape_literal`; `fits_block` for a YAML block          |
| comment in YAML and Python               | `comment`                                         |
| JSON, SARIF                              | `json_text`                                       |
| Markdown                                 | `md_text`, `md_code`, `md_cell`, `md_code_cell`   |
| JUnit and other XML                      | `xml_text`, `xml_attribute`                       |
| GitHub's workflow commands               | `github_data`, `github_property`                  |

A value that an engine reads stays the same value: it is written with escapes. What people read shows the escapes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

# The categories Cc, Cf, Cs, Co, Zl, Zp and Zs, except for the space, the ideographic space and the line feed. The
# ranges are written out, because Python's own tables grow with its version and artifacts must not change with it.
_CATEGORIES = (
    "\x00-\x09\x0b-\x1f\x7f-\xa0\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u1680\u180e\u2000-\u200f"
    "\u2028-\u202f\u205f-\u206f\ud800-\uf8ff\ufeff\ufff9-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0001\U000e0020-\U000e007f\U000f0000-\U0010ffff"
)
# What is invisible in other categories: fillers, joiners, blanks, variation selectors, what Unicode reserves for more
# of them (Default_Ignorable_Code_Point), and code points that will never be characters.
_NAMED_CHARACTERS = (
    "\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufdd0-\ufdef\ufe00-\ufe0d\uffa0\ufff0-\ufff8\ufffc"
    "\ufffe\uffff\U00016fe4\U0001d159\U000e0000-\U000e0fff"
) + "".join(f"{chr(plane + 0xFFFE)}{chr(plane + 0xFFFF)}" for plane in range(0x10000, 0xF0000, 0x10000))
# Behind a symbol these two choose between text and emoji, as in ⚠️; anywhere else they only hide.
_SYMBOLS = "\xa9\xae\u203c\u2049\u2122\u2139\u2190-\u27bf\u2900-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff"
_STYLE = f"(?<![{_SYMBOLS}])[\ufe0e\ufe0f]"

HIDDEN_CHARACTERS = re.compile(f"[\n{_CATEGORIES}{_NAMED_CHARACTERS}]|{_STYLE}")
"""A character that a reader does not see as what it is."""
_HIDDEN_IN_LINES = re.compile(f"[{_CATEGORIES}{_NAMED_CHARACTERS}]|{_STYLE}")

COMMAND = re.compile(r"^([^\S\n]*):(?=:)|(?<=#)()#(?=[a-z]*\[)", re.MULTILINE)
"""What a CI system may obey in a log: `::…` where a line begins, and `##[…`, `##vso[…` and `##teamcity[…` anywhere."""
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_EDITOR = re.compile(r"(coding|\bvim?|\bex)([:=])|(-)(\*)(?=-)", re.IGNORECASE)
"""What Python (PEP 263) and editors obey in a comment at the top of a file."""


def line(text: str) -> str:
    """One line for people: every hidden character as an escape, nothing that a CI system obeys."""
    return COMMAND.sub(_escape_command, _escape_hidden(text))


def lines(text: str) -> str:
    """Several lines for people, each as `line` has it."""
    return "\n".join(map(line, text.split("\n")))


def shown_lines(text: str | None) -> list[str]:
    """The lines of a text for people, each as `line` has it; none of no text."""
    return [line(part).rstrip() for part in text.strip("\n").split("\n")] if text else []


def colored_lines(text: str) -> str:
    """Several lines in which gpuflow has set colors; everything else is as in `lines`."""
    parts = re.split("(\x1b\\[[0-9;]*m|\n)", text)
    return COMMAND.sub(
        _escape_command, "".join(part if index % 2 else _escape_hidden(part) for index, part in enumerate(parts))
    )


def _escape_hidden(text: str) -> str:
    if text.isascii() and text.isprintable():
        return text
    text = HIDDEN_CHARACTERS.sub(lambda match: _people_escape(match[0]), text)
    if text.isprintable():
        return text
    # Code points that this Python does not know, and the ideographic space. A style behind a symbol is kept.
    return "".join(letter if letter.isprintable() else _people_escape(letter) for letter in text)


def _people_escape(character: str) -> str:
    short = repr(character)[1:-1]
    return short if short != character else _escape(character)


def _escape_command(match: re.Match[str]) -> str:
    return f"{match[1]}\\x3a" if match[1] is not None else "\\x23"


def control_at(name: str) -> int | None:
    """Where a name holds a control character, a line separator or a change of direction: no honest name does."""
    found = _CONTROL.search(name)
    return found.start() if found else None


def escape_literal(literal: str) -> str:
    """A string literal of Python, or one of YAML in double quotes, with every hidden character as an escape."""
    literal = HIDDEN_CHARACTERS.sub(lambda match: _escape(match[0]), literal)
    return COMMAND.sub(lambda match: match[0] if match[1] is not None else "\\u0023", literal)


def _escape(character: str) -> str:
    code = ord(character)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def fits_block(text: str) -> bool:
    """Whether a text may stand in a YAML block as it is; otherwise it needs quotes, and escapes."""
    return not _HIDDEN_IN_LINES.search(text) and not COMMAND.search(text)


def comment(texts: Iterable[str]) -> str:
    """Lines of a comment in Python or YAML. None can end it, or tell Python or an editor how to read the file."""
    return "".join(f"# {_EDITOR.sub(_escape_markdown, line(text))}\n" for text in texts)


def _escape_markdown(match: re.Match[str]) -> str:
    return f"{match[1] or match[3]}\\x{ord(match[2] or match[4]):02x}"


def json_text(data: Any, *, indent: int | None = 2, sort_keys: bool = False) -> str:
    """A JSON document, ending with a newline: the same values, nothing hidden, nothing that a CI system obeys."""
    text = json.dumps(data, indent=indent, sort_keys=sort_keys, ensure_ascii=False)
    text = _HIDDEN_IN_LINES.sub(lambda match: json.dumps(match[0])[1:-1], text)
    return COMMAND.sub(lambda match: match[0] if match[1] is not None else "\\u0023", text) + "\n"


_MD_ACTIVE = re.compile(r"[\\`*\[~$]|(?<![^\W_])_|_(?![^\W_])")
"""What Markdown reads in a line of text; inside of a word `_` is only a letter."""
_MD_BLOCK = re.compile(r"^(\d*)([-+#=>]|(?<=\d)[.)])")
"""What begins a list, a heading or a quotation."""
_MD_LINK = re.compile(r":(?=//)|www(?=\.)|(?:mailto|xmpp):|@|(?:#|\bGH-)(?=\d)", re.IGNORECASE)
"""What GitHub makes a link of by itself: addresses, e-mail, people, issues. A link eats backslashes, so none may be."""


def md_text(text: str) -> str:
    """Text in Markdown, on one line. Code between backticks stays code; nothing else is more than text."""
    text = line(text).strip()
    parts, end = [], 0
    for start, inside, after, stop in _md_spans(text):
        if start >= end:
            parts += [_md_plain(text[end:start]), md_code(text[inside:after])]
            end = stop
    return _MD_BLOCK.sub(r"\1\\\2", "".join([*parts, _md_plain(text[end:])]))


def _md_spans(text: str) -> list[tuple[int, int, int, int]]:
    """Code from each run of backticks to the next of the same length: start, inside, end of the inside, end."""
    runs = [run.span() for run in re.finditer("`+", text)]
    following: dict[int, tuple[int, int]] = {}
    spans = []
    for start, inside in reversed(runs):
        closing = following.get(inside - start)
        if closing is not None:
            spans.append((start, inside, *closing))
        following[inside - start] = (start, inside)
    return spans[::-1]


def _md_plain(text: str) -> str:
    text = _MD_ACTIVE.sub(r"\\\g<0>", text).replace("&", "&amp;").replace("<", "&lt;")
    return _MD_LINK.sub(r"\g<0><!-- -->", text)


def md_code(text: str) -> str:
    """Text between backticks, in more of them than it holds in a row."""
    text = line(text)
    if not text.strip():
        return ""
    fence = "`" * (max(map(len, re.findall("`+", text)), default=0) + 1)
    pad = " " if text[0] in "` " or text[-1] in "` " else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def md_cell(text: str) -> str:
    """Text in a cell of a table."""
    return _md_plain(line(text).strip()).replace("|", "\\|")


def md_code_cell(text: str) -> str:
    """Text between backticks in a cell of a table, where only a backslash keeps a bar."""
    return md_code(text).replace("|", "\\|")


def xml_text(text: str) -> str:
    """The content of an XML element; XML has no way to write most control characters."""
    return _xml_escape(lines(text))


def xml_attribute(text: str) -> str:
    """An XML attribute's value, in its quotes."""
    value = _xml_escape(line(text))
    if '"' not in value:
        return f'"{value}"'
    return f"'{value}'" if "'" not in value else '"{}"'.format(value.replace('"', "&quot;"))


def _xml_escape(text: str) -> str:
    return text.replace("&", "&amp;").replace(">", "&gt;").replace("<", "&lt;")


def github_data(text: str) -> str:
    """The message of a workflow command."""
    return lines(text).replace("%", "%25").replace("\n", "%0A")


def github_property(text: str) -> str:
    """A property of a workflow command, such as its file."""
    return github_data(text).replace(":", "%3A").replace(",", "%2C")
