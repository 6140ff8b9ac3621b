"""YAML as kubectl, Argo and the API server read it: the scalars of YAML 1.1 in the dialect of Go.

To them `suspend: yes` and `on: …` are booleans, `0777` is 511, `1_000` is 1000, and a number is what JSON makes of it:
`1.10` is 1.1, and `1e3` is 1000. A pipeline of ours is YAML 1.2, as are the documents of Kubeflow.

Mirrors `resolve` of go.yaml.in/yaml/v2, which sigs.k8s.io/yaml uses; tests/differential compares the two.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import yaml

from gpuflow.core import yaml_tree
from gpuflow.core.yaml_tree import Float, Int

OURS: Final = "gpuflow/"
_LONGEST = 300
"""Longer numbers stay text, so that a huge literal cannot stall the reader."""
_WORDS: Final[dict[str, bool | None]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
}
_NUMBERS_BEGIN = frozenset("0123456789+-.")
_BASES = ((16, re.compile(r"0[xX][0-9a-fA-F]+")), (8, re.compile(r"0[oO]?[0-7]+")), (2, re.compile(r"0[bB][01]+")))
_DECIMAL = re.compile(r"0|[1-9][0-9]*")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_POINT_FIRST = re.compile(r"\.[0-9](_?[0-9])*([eE][-+]?[0-9](_?[0-9])*)?")
_WHOLE_NUMBER = re.compile(r"-?[0-9]+")


def parse_manifests(text: str, file: str) -> list[Any]:
    """All documents of a stream: objects of Kubernetes as Kubernetes reads them, the others as YAML 1.2."""
    differs = False

    def ours(event: yaml.ScalarEvent) -> Any:
        nonlocal differs
        value = yaml_tree.value_of(event)
        differs = differs or (_is_plain(event) and is_read_otherwise(event.value))
        return value

    documents = yaml_tree.parse_all(text, file, read=ours)
    if not differs or not any(map(_is_manifest, documents)):
        return documents
    theirs = yaml_tree.parse_all(text, file, read=_value_of)
    return [their if _is_manifest(our) else our for our, their in zip(documents, theirs, strict=True)]


def is_read_otherwise(text: str) -> bool:
    """Whether Kubernetes takes a scalar without quotes for something else than YAML 1.2 does."""
    if text not in _WORDS and text[0] not in _NUMBERS_BEGIN:
        return False
    our, their = yaml_tree.parse_plain(text), resolve(text)
    return type(our) is not type(their) or getattr(our, "text", our) != getattr(their, "text", their)


def resolve(text: str) -> Any:
    """What a scalar without quotes means to Kubernetes; a number has the spelling of JSON."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in _NUMBERS_BEGIN or len(text) > _LONGEST:
        return text
    if text[0] == ".":
        return _number(float(text)) if _POINT_FIRST.fullmatch(text) else text
    digits = text.replace("_", "")
    whole = _parse_int(digits)
    if whole is not None:
        return _int(whole, str(whole))
    return _number(float(digits), text) if _FLOAT.fullmatch(digits) else text


def _parse_int(digits: str) -> int | None:
    """As Go's ParseInt and ParseUint with base 0."""
    sign, body = (digits[0], digits[1:]) if digits[:1] in ("-", "+") else ("", digits)
    found = int(body) if _DECIMAL.fullmatch(body) else None
    for base, form in _BASES:
        if found is None and form.fullmatch(body):
            found = int(body.lstrip("0").lstrip("xXoObB") or "0", base)
    if found is None:
        return None
    found = -found if sign == "-" else found
    most = 2**63 if sign == "+" else 2**64  # ParseUint takes no sign
    return found if -(2**63) <= found < most else None


def _number(value: float, text: str = "") -> Any:
    """A number of JSON; one that is too large for Go stays text."""
    if value in (float("inf"), float("-inf")):
        return text
    written = _json(value)
    if _WHOLE_NUMBER.fullmatch(written):
        return _int(int(written), written)
    number = Float(value)
    number.text = written
    return number


def _json(value: float) -> str:
    """As Go's encoding/json writes a float: the fewest digits, and an exponent only far from 1."""
    mantissa, _, exponent = f"{value!r}".partition("e")
    if value and not 1e-6 <= abs(value) < 1e21:
        sign = "-" if exponent.startswith("-") else "+"
        return f"{mantissa.removesuffix('.0')}e{sign}{exponent.lstrip('+-').lstrip('0')}"
    if exponent:
        digits = mantissa.lstrip("-").replace(".", "")
        point = len(mantissa.lstrip("-").partition(".")[0]) + int(exponent)
        body = digits[:point].ljust(point, "0") if point > 0 else "0." + "0" * -point + digits
        return ("-" if value < 0 else "") + (body + "." + digits[point:] if 0 < point < len(digits) else body)
    return mantissa.removesuffix(".0")


def _int(value: int, text: str) -> Int:
    number = Int(value)
    number.text = text
    return number


def _value_of(event: yaml.ScalarEvent) -> Any:
    return resolve(event.value) if _is_plain(event) else event.value


def _is_plain(event: yaml.ScalarEvent) -> bool:
    if event.tag is None:
        return bool(event.implicit[0])
    return not event.tag.endswith(("!", ":str"))


def _is_manifest(document: object) -> bool:
    """Whether it names a version and a kind, as all objects of Kubernetes do, and is none of ours."""
    if not isinstance(document, Mapping):
        return False
    version, kind = document.get("apiVersion"), document.get("kind")
    return isinstance(version, str) and isinstance(kind, str) and not version.startswith(OURS)
