"""Python objects by import path: `alerts.page`; `{path: alerts.Page, arguments: {team: nlp}}` for what a call makes."""

from __future__ import annotations

import keyword
import re
from typing import Annotated, Any, ClassVar

from pydantic import PlainValidator, WithJsonSchema

from gpuflow.spec.model import Model, OneOrMore, problem
from gpuflow.spec.params import plain_json

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


class Imported(Model):
    """A Python object that the compiled file imports."""

    SHORT_FORM: ClassVar[dict[str, Any]] = {"type": "string", "examples": ["company.alerts.page"]}

    path: ImportPath
    """Module and name: company.alerts.page."""
    arguments: dict[ArgumentName, Json] | None = None
    """If given, the object is called with these, and what it returns is used; {} for a call without arguments."""

    @classmethod
    def shorthand(cls, value: Any) -> Any:
        return {"path": value} if isinstance(value, str) else value


Imports = Annotated[tuple[Imported, ...], OneOrMore(dict, Imported)]
