"""The base of all spec models: frozen, closed to unknown keys, equal when their fields are equal.

Short forms (`cpu: 4`, `retry: 3`, `gpu: a100-80gb x 2`) are expanded by each model's `shorthand`, never by unions:
so a validation error always names the field the user wrote. Null in a document takes away what would count otherwise;
`Nulls` keeps it apart from the values of a model.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable
from typing import Annotated, Any, ClassVar, NoReturn, Self, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ModelWrapValidatorHandler,
    PlainSerializer,
    PlainValidator,
    PrivateAttr,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from gpuflow.quantity import Quantity
from gpuflow.spec.duration import Duration

M = TypeVar("M", bound=BaseModel)
Nulls = frozenset[tuple[str, ...]]
"""What is taken away: a field, or a field and a key of it."""


def _nulls_in(fields: dict[str, Any], known: Collection[str], maps: Collection[str]) -> list[tuple[str, ...]]:
    """Where a map says null: in fields that are `known`, and for keys of those that are `maps`."""
    found: list[tuple[str, ...]] = [(name,) for name, value in fields.items() if value is None and name in known]
    for name in maps:
        inner = fields.get(name)
        if isinstance(inner, dict):
            found += [(name, key) for key, value in inner.items() if value is None and isinstance(key, str)]
    return found


def _without_nulls(fields: dict[str, Any], nulls: list[tuple[str, ...]]) -> dict[str, Any]:
    """The map with values alone."""
    result = {name: value for name, value in fields.items() if (name,) not in nulls}
    for name in {path[0] for path in nulls if len(path) > 1}:
        result[name] = {key: value for key, value in result[name].items() if value is not None}
    return result


def problem(code: str, message: str, hint: str | None = None, *, at: tuple[str | int, ...] = ()) -> PydanticCustomError:
    """A validation error that carries one of our codes and the way out; `at` is the place below the value at hand."""
    return PydanticCustomError(code, "{message}", {"message": message, "hint": hint, "at": at})


class Model(BaseModel):
    """A frozen part of a document."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=False)

    SHORT_FORM: ClassVar[dict[str, Any] | None] = None
    SHORT_FIELD: ClassVar[str] = ""
    SHORT_TYPES: ClassVar[tuple[type, ...]] = (str,)

    def __init_subclass__(
        cls, short: str = "", types: tuple[type, ...] = (str,), form: dict[str, Any] | None = None, **config: Any
    ) -> None:
        """A model that has a short form. `short`: the field that a value alone stands for, where the form is no more
        than that; `types`: what such a value may be, a boolean never; `form`: its JSON Schema, for editors."""
        super().__init_subclass__(**config)
        if form is not None:
            cls.SHORT_FORM, cls.SHORT_FIELD, cls.SHORT_TYPES = form, short, types

    @classmethod
    def shorthand(cls, value: Any) -> Any:
        """Expand the short form; anything else is returned as it is."""
        short = cls.SHORT_FIELD and isinstance(value, cls.SHORT_TYPES) and not isinstance(value, bool)
        return {cls.SHORT_FIELD: value} if short else value

    @classmethod
    def unknown(cls, key: str) -> tuple[str, str, str | None] | None:
        """Code, message and way out for a key that is no field, where the model knows more than that."""
        return None

    @model_validator(mode="before")
    @classmethod
    def _expand(cls, value: Any) -> Any:
        return cls.shorthand(value)

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        full = handler.resolve_ref_schema(handler(schema))
        if cls.SHORT_FORM is None:
            return full
        description = {key: full.pop(key) for key in ("description",) if full.get(key)}
        return {**description, "anyOf": [cls.SHORT_FORM, full]}

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.__dict__ == other.__dict__

    __hash__ = None  # type: ignore[assignment]  # fields hold mappings; nothing keys on a whole model


class WithNulls(Model):
    """A model in which null takes away what would count otherwise."""

    NULLABLE: ClassVar[Collection[str]] = ()
    """The fields that may be null."""
    NULLABLE_KEYS: ClassVar[Collection[str]] = ()
    """The maps whose keys may be null."""

    _unsaid: Nulls = PrivateAttr(default=frozenset())

    @property
    def nulls(self) -> Nulls:
        """What null takes away: a field, or a field and a key of it."""
        memory = self.__pydantic_private__ or {}  # asked so often that the long way round is felt
        said: Nulls = memory["_unsaid"]
        return said

    @model_validator(mode="wrap")
    @classmethod
    def _nulls(cls, value: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        if not isinstance(value, dict):
            return handler(value)
        unsaid = _nulls_in(value, cls.NULLABLE, cls.NULLABLE_KEYS)
        model = handler(_without_nulls(value, unsaid) if unsaid else value)
        if unsaid:
            model._unsaid = frozenset(unsaid)
        return model

    def __eq__(self, other: object) -> bool:
        return super().__eq__(other) and isinstance(other, WithNulls) and self._unsaid == other._unsaid


class EmptyMap(dict[Any, Any]):
    """An empty map that stays empty. pydantic copies a default that could change for every model that it makes, and
    finds that out by asking for a hash."""

    __slots__ = ()

    def __hash__(self) -> int:  # type: ignore[override]  # that of a dict is None
        return 0

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError("a part of a document does not change")

    __setitem__ = __ior__ = setdefault = update = _refuse

    def __deepcopy__(self, memo: dict[int, Any]) -> EmptyMap:
        return self

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.dict_schema()  # to JSON Schema, which shows defaults, it is a map like any other


EMPTY_MAP: dict[Any, Any] = EmptyMap()
"""The default of maps that every step has."""


class Intern:
    """Marks a part that many steps have alike: where they say the same in the same words, they hold one object."""

    def __init__(self) -> None:
        self._made: dict[Hashable, Any] = {}

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_wrap_validator_function(self._shared_value, handler(source))

    def _shared_value(self, value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
        try:
            words = _words_of(value)
        except TypeError:
            return handler(value)
        made = self._made.get(words)
        if made is None:
            made = handler(value)
            if len(self._made) >= MOST_ALIKE:
                self._made.clear()
            self._made[words] = made
        return made


MOST_ALIKE = 1024
"""How many different ones are kept."""


def _words_of(value: Any) -> Hashable:
    """What a value of a document says, with the spelling of its numbers. Raises where it is no part of a document."""
    kind = type(value)
    if kind is str or kind is bool or value is None:
        return value  # type: ignore[no-any-return]
    if isinstance(value, int | float):
        return kind, as_spelled(value)
    if isinstance(value, dict):
        return kind, *[(key, _words_of(item)) for key, item in value.items()]
    if isinstance(value, list):
        return kind, *[_words_of(item) for item in value]
    raise TypeError(kind)


class OneOrMore:
    """Marks a list for which one item may stand alone, in documents and in their schema."""

    def __init__(self, *kinds: type) -> None:
        self.kinds = (str, *kinds)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self._as_list, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        full = handler(schema)
        return {"anyOf": [full["items"], full]}

    def _as_list(self, value: Any) -> Any:
        return [value] if isinstance(value, self.kinds) else value


def as_spelled(value: Any) -> Any:
    """A number as the document spelled it, so that `1e-3` stays `1e-3`; other values unchanged."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    return getattr(value, "text", None) or repr(value)


def _quantity(value: Any) -> Quantity:
    if isinstance(value, Quantity):
        return value
    value, hint = as_spelled(value), "write it like 4, 500m, 16Gi or 1.5"
    if not isinstance(value, str):
        raise problem("GF121", f"{value!r} is not a quantity", hint)
    try:
        parsed = Quantity(value)
    except ValueError as refusal:
        raise problem("GF121", f'"{value}" is not a quantity: {refusal}', hint) from None
    if parsed.nano < 0:
        raise problem("GF122", f'"{value}" is negative', "quantities start at 0")
    return parsed


def _duration(value: Any) -> Duration:
    try:
        return Duration(value)
    except ValueError as refusal:
        raise problem("GF123", str(refusal), "use whole days, hours, minutes and seconds") from None


def _time_limit(value: Any) -> Duration:
    limit = _duration(value)
    if not limit.seconds:
        raise problem("GF127", f"{limit} is not a time limit", "give at least 1s, or leave the limit out")
    return limit


def _yes_or_no(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise problem("GF124", f"{value!r} is not true or false", "write true or false, without quotes")


def _whole_number(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value)
    raise problem("GF125", f"{value!r} is not a whole number", "write digits only, without quotes")


def check_receivable(text: str) -> str:
    """Text that a program can receive as an argument, a variable or a file: no NUL, no half of a surrogate pair."""
    if "\0" in text:
        raise problem("GF141", "text cannot hold a NUL character", "no program can receive it as an argument")
    if not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text):
        raise problem("GF141", "text cannot hold half of a surrogate pair", "no program can receive it as UTF-8")
    return text


def _check_text(value: Any) -> str:
    if isinstance(value, str):
        return check_receivable(value)
    shown = str(value).lower() if isinstance(value, bool) else as_spelled(value)
    if not isinstance(shown, str):
        raise problem("GF126", "text is expected here", "give it a value")
    raise problem("GF126", f"{shown} is not text", f'quote it: "{shown}"')


QUANTITY_SCHEMA: dict[str, Any] = {
    "anyOf": [
        {"type": "number", "minimum": 0},
        {"type": "string", "pattern": r"^[+]?[0-9.]+([eE][-+]?[0-9]+|[numkMGTPE]|[KMGTPE]i)?$"},
    ]
}
QuantityField = Annotated[Quantity, PlainValidator(_quantity), PlainSerializer(str), WithJsonSchema(QUANTITY_SCHEMA)]
_DURATION_SCHEMA = WithJsonSchema(
    {"type": "string", "pattern": r"^([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?$", "examples": ["30s", "10m", "2h"]}
)
DurationField = Annotated[Duration, PlainValidator(_duration), PlainSerializer(str), _DURATION_SCHEMA]
TimeLimit = Annotated[Duration, PlainValidator(_time_limit), PlainSerializer(str), _DURATION_SCHEMA]
"""A duration after which something ends: Kubernetes refuses 0, and some engines take it as no limit."""
Bool = Annotated[bool, PlainValidator(_yes_or_no), WithJsonSchema({"type": "boolean"})]
Integer = Annotated[int, PlainValidator(_whole_number), WithJsonSchema({"type": "integer"})]
Str = Annotated[str, PlainValidator(_check_text), WithJsonSchema({"type": "string"})]


Count = Annotated[
    int, PlainValidator(lambda value: _number_in_range(value, 1)), WithJsonSchema({"type": "integer", "minimum": 1})
]
Natural = Annotated[
    int, PlainValidator(lambda value: _number_in_range(value, 0)), WithJsonSchema({"type": "integer", "minimum": 0})
]
Int32 = Annotated[
    int,
    PlainValidator(lambda value: _number_in_range(value, -(2**31))),
    WithJsonSchema({"type": "integer", "minimum": -(2**31), "maximum": 2**31 - 1}),
]
Port = Annotated[
    int,
    PlainValidator(lambda value: _number_in_range(value, 1, 65535)),
    WithJsonSchema({"type": "integer", "minimum": 1, "maximum": 65535}),
]
Number = Annotated[float, PlainValidator(lambda value: _finite_number(value)), WithJsonSchema({"type": "number"})]


def _number_in_range(value: Any, minimum: int, maximum: int = 2**31 - 1) -> int:
    number = _whole_number(value)
    if not minimum <= number <= maximum:
        raise problem("GF127", f"{number} is out of range: the smallest here is {minimum}, the largest {maximum}")
    return number


def _finite_number(value: Any) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300:
        return float(value)
    raise problem("GF118", f"{as_spelled(value)!r} is not a number", "write it without quotes")


def exactly_one(*names: str, what: str) -> Any:
    """A validator: exactly one of the named fields is set."""

    def check(model: M) -> M:
        given = [name for name in names if getattr(model, name) is not None]
        if len(given) != 1:
            have = " and ".join(given) if given else "none"
            hint = f"keep {' or '.join(given)}" if given else f"give one of them, for example {names[0]}: …"
            raise problem("GF128", f"{what} takes exactly one of {', '.join(names)}; {have} given", hint)
        return model

    return model_validator(mode="after")(check)
