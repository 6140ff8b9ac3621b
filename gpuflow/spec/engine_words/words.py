"""What the models of an engine's own words have in common: words that the spec has a field for are refused with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from gpuflow.errors import did_you_mean
from gpuflow.spec.model import Model


class EngineWords(Model):
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


def misplaced(key: str, engines: type[Model]) -> str | None:
    """The way out for a key beside `engines` that belongs into it; None for any other key."""
    for engine, field in engines.model_fields.items():
        words = next(each for each in _models(field.annotation) if issubclass(each, EngineWords))
        if key == engine:
            return f"write engines: {{{engine}: {{…}}}}"
        word = words.SPELLED.get(key, key)
        if word in words.model_fields:
            return f"it is a word of {words.TITLE}: write engines: {{{engine}: {{{word}: …}}}}"
        if key in words.OURS:
            return words.OURS[key]
    return None


def _models(annotation: Any) -> list[type[Model]]:
    return [each for each in getattr(annotation, "__args__", (annotation,)) if isinstance(each, type)]
