"""Files that a step finds at a path before its command starts: where they come from."""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar, Literal

from pydantic import PlainValidator, WithJsonSchema, model_validator

from gpuflow.spec.model import Model, QuantityField, exactly_one, problem
from gpuflow.spec.names import ObjectName
from gpuflow.spec.text import OutputRef, TextField, parse_text
from gpuflow.spec.text import literal as as_written
from gpuflow.spec.volumes import SubPath

_REFERENCES = frozenset({"param", "item", "run", "join", "text", "format", "timezone"})
"""The maps that are text, so that a URI may be written without its key."""
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def _output(value: Any) -> OutputRef:
    if isinstance(value, OutputRef):
        return value
    found = parse_text(value if isinstance(value, dict) else {"output": value})
    if not isinstance(found, OutputRef):
        raise problem("GF142", "an output of an earlier step is expected here", "write {output: step.name}")
    return found


def _digest(value: Any) -> str:
    if not isinstance(value, str) or not _DIGEST.fullmatch(value.lower()):
        raise problem("GF185", f"{value!r:.80} is not a digest", "write sha256: and 64 hex digits")
    return value.lower()


OutputField = Annotated[
    OutputRef, PlainValidator(_output), WithJsonSchema({"type": "string", "examples": ["train.model"]})
]
DigestField = Annotated[
    str, PlainValidator(_digest), WithJsonSchema({"type": "string", "pattern": "^sha256:[0-9a-fA-F]{64}$"})
]


class Input(Model):
    """A file or directory at a path of the container: an earlier step's output, data at a URI, or a claim's folder."""

    SHORT_FORM: ClassVar[dict[str, Any]] = {"type": "string", "examples": ["s3://datasets/imagenet/"]}

    output: OutputField | None = None
    """The file or directory output of an earlier step, like train.model. Of a fan-out: a directory with one entry for
    each item, named by its number in the list, from 0."""
    uri: TextField = None
    """Data from outside, like s3://datasets/imagenet/, or a URI that another step or a parameter gives."""
    type: Literal["file", "directory"] | None = None
    """What is at the uri; default: directory. An output knows it itself."""
    digest: DigestField | None = None
    """What the data must be, sha256: and 64 hex digits: of a file the hash of its bytes, of a directory the hash that
    `gpuflow-run digest` prints."""
    size: QuantityField | None = None
    """How much room it takes on the node's disk; default: the size of the output, for each item of a fan-out whose list
    stands in the document, and once where only the run knows it."""
    claim: ObjectName | None = None
    """A PersistentVolumeClaim that has the data already: mounted read-only, nothing is copied."""
    path: SubPath | None = None
    """The folder or file of the claim; default: all of it."""

    @classmethod
    def shorthand(cls, value: Any) -> Any:
        if value is None:
            hint = "write a uri, {output: step.name} or {claim: name}, or remove the line"
            raise problem("GF185", "an input needs a source, and this one has none", hint)
        if isinstance(value, OutputRef):
            return {"output": value}
        return value if isinstance(value, dict) and not (value and value.keys() <= _REFERENCES) else {"uri": value}

    @model_validator(mode="after")
    def _consistent(self) -> Input:
        exactly_one(self, ("output", "uri", "claim"), "an input")
        of_others = {"type": self.uri, "digest": self.claim is None or None, "size": self.claim is None or None}
        for name, needed in {**of_others, "path": self.claim}.items():
            if getattr(self, name) is not None and needed is None:
                owner = "a claim" if name == "path" else "a uri" if name == "type" else "what is fetched"
                raise problem("GF185", f"{name} belongs to {owner}", f"remove {name}", at=(name,))
        return self

    @property
    def is_fetched(self) -> bool:
        """Whether the supervisor brings it; what lies on a claim is mounted."""
        return self.claim is None

    def canonical(self) -> Any:
        """As the document writes it: a URI that says everything stands alone."""
        said = {
            "output": None if self.output is None else f"{self.output.step}.{self.output.name}",
            "uri": None if self.uri is None else _written(self.uri),
            "type": self.type,
            "digest": self.digest,
            "size": None if self.size is None else str(self.size),
            "claim": self.claim,
            "path": self.path,
        }
        said = {key: value for key, value in said.items() if value is not None}
        return said["uri"] if set(said) == {"uri"} and not isinstance(self.uri, OutputRef) else said


def _written(text: Any) -> Any:
    return as_written(text) if isinstance(text, str) else text.canonical()
