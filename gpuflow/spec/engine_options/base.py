"""What the options of all engines share: options that the spec has a field for are refused with that field's name.

Python objects are given by import path: `alerts.page`, or `{path: alerts.Page, arguments: {team: nlp}}` for what a call
returns.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import PlainValidator, WithJsonSchema

from gpuflow.core.errors import did_you_mean
from gpuflow.spec.model import Model, OneOrMore, problem
from gpuflow.spec.params import plain_json


class EngineOptions(Model):
    """Words of one engine. They reach that engine unchanged, and say nothing to the others."""

    TITLE: ClassVar[str] = ""
    """The engine, as a sentence calls it."""
    OURS: ClassVar[Mapping[str, str]] = {}
    """Words of the engine that would contradict the spec, each with the spec's own word for it."""
    ELSEWHERE: ClassVar[Mapping[str, str]] = {}
    """Other real words of the engine that are not taken here, each with what to do instead."""
    OURS_INSIDE: ClassVar[Mapping[str, str]] = {}
    """Words for the whole run: those of its parts that would contradict the spec, one level too high."""
    SPELLED: ClassVar[Mapping[str, str]] = {}
    """Words as the engine itself spells them, each with the word here."""

    @classmethod
    def unknown(cls, key: str) -> tuple[str, str, str | None]:
        ours = {**cls.OURS_INSIDE, **cls.OURS}
        if key in cls.ELSEWHERE:
            return "GF113", f'unknown key "{key}"', cls.ELSEWHERE[key]
        if key in ours:
            return "GF351", f'"{key}" of {cls.TITLE} is not taken here: the pipeline says it itself', ours[key]
        if key in cls.SPELLED:
            return "GF113", f'unknown key "{key}"', f"write {cls.SPELLED[key]}: …"
        near = did_you_mean(key, {*cls.model_fields, *cls.OURS, *cls.ELSEWHERE})
        return "GF113", f'unknown key "{key}"', near or f"it is none of the words of {cls.TITLE} that are taken here"

    def most_runs(self) -> int | None:
        """How many runs may be active at once, where the engine's own words say so."""
        return None

    def keeps_pods(self) -> bool:
        """Whether the engine's own words keep pods that have succeeded."""
        return False


def misplaced_hint(key: str, engines: type[Model]) -> str | None:
    """The hint for a key next to `engines` that belongs inside it; None for any other key."""
    for engine, field in engines.model_fields.items():
        kinds = getattr(field.annotation, "__args__", (field.annotation,))
        words = next(each for each in kinds if isinstance(each, type) and issubclass(each, EngineOptions))
        if key == engine:
            return f"write engines: {{{engine}: {{…}}}}"
        word = words.SPELLED.get(key, key)
        if word in words.model_fields:
            return f"it is a word of {words.TITLE}: write engines: {{{engine}: {{{word}: …}}}}"
        if key in words.OURS:
            return words.OURS[key]
    return None


_PATH = r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)+"
_NAME = r"[A-Za-z_][A-Za-z0-9_]*"


def _import_path(value: Any) -> str:
    if isinstance(value, str) and re.fullmatch(_PATH, value) and not any(map(keyword.iskeyword, value.split("."))):
        return value
    shown = f'"{value}"' if isinstance(value, str) else repr(value)
    raise problem("GF352", f"{shown} is not an import path", "write module.name, for example company.alerts.page")


def _argument_name(value: Any) -> str:
    if isinstance(value, str) and re.fullmatch(_NAME, value) and not keyword.iskeyword(value):
        return value
    raise problem("GF352", f"{value!r} is not the name of an argument", "use letters, digits and '_'")


ImportPath = Annotated[str, PlainValidator(_import_path), WithJsonSchema({"type": "string", "pattern": f"^{_PATH}$"})]
ArgumentName = Annotated[
    str, PlainValidator(_argument_name), WithJsonSchema({"type": "string", "pattern": f"^{_NAME}$"})
]
Json = Annotated[Any, PlainValidator(plain_json), WithJsonSchema({})]


class Imported(Model, short="path", form={"type": "string", "examples": ["company.alerts.page"]}):
    """A Python object that the compiled file imports."""

    path: ImportPath
    """Module and name: company.alerts.page."""
    arguments: dict[ArgumentName, Json] | None = None
    """If given, the object is called with these, and what it returns is used; {} for a call without arguments."""


Imports = Annotated[tuple[Imported, ...], OneOrMore(dict, Imported)]
