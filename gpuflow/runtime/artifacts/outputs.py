"""What a step leaves behind: written in one way, put where each engine looks.

The program writes `$GPUFLOW_OUTPUTS/<name>`, or the path the step gives. A value is the text of that file without one
last newline, on every engine: Argo cuts it itself, KFP and Airflow do not.
"""

from __future__ import annotations

import json
import os

from gpuflow.runtime.base import container, files
from gpuflow.runtime.base.files import discard
from gpuflow.runtime.base.options import OUTPUT_TYPES, BadOption
from gpuflow.runtime.base.records import KeptOutput, text_digest
from gpuflow.runtime.base.signing import why_secret

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

XCOM = "/airflow/xcom/return.json"
ARTIFACTS = ("file", "directory")
ARTIFACTS_ENTRY = "gpuflow.artifacts"
"""The entry of return.json that says more of artifacts than their URIs. No output has a dot in its name."""
NOTE = ".artifact.json"
"""What follows an artifact's name in the name of the small file about it, which Argo can show."""
VALUE_MOST = 8 << 20
"""Most bytes of a value. The success marker holds them all, and no engine takes as much."""
KUBEFLOW_EXACT = 2**53
"""KFP hands numbers over as doubles."""


class BadOutput(Exception):
    """The program ended well but its outputs are not there, or not what they should be."""


class Output:
    """One output: its name, its type, and where the program writes it when not in the usual place."""

    def __init__(self, name: str, kind: str, path: str | None) -> None:
        self.name, self.kind = name, kind
        self.path = (path.rstrip("/") or path) if path else None

    @property
    def is_kept(self) -> bool:
        """Whether it is kept as files, and not as a value."""
        return self.kind in ARTIFACTS

    def place(self, folder: str) -> str:
        return self.path or os.path.join(folder, self.name)


def parse(words: Sequence[str]) -> list[Output]:
    """`NAME[:TYPE][=PATH]` each."""
    outputs = []
    for word in words:
        head, _, path = word.partition("=")
        name, _, kind = head.partition(":")
        if not name or "/" in name or name.startswith("."):
            raise BadOption(f'--output "{word}": "{name}" cannot name an output')
        if (kind or "string") not in OUTPUT_TYPES:
            raise BadOption(f'--output "{word}": "{kind}" is not one of {", ".join(OUTPUT_TYPES)}')
        outputs.append(Output(name, kind or "string", path or None))
    return outputs


def pairs(words: Sequence[str], option: str) -> dict[str, str]:
    """`NAME=VALUE` each."""
    found = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not (name and equals and value):
            raise BadOption(f'--{option} "{word}" is not NAME={"URI" if option == "artifact" else "PATH"}')
        found[name] = value
    return found


def check_outputs(declared: Sequence[Output], artifacts: Mapping[str, str], places: Mapping[str, str]) -> None:
    """BadOption for a name that is no output, and for two outputs in one place: one would be written over the other."""
    names = [output.name for output in declared]
    for name in names:
        if names.count(name) > 1:
            raise BadOption(f'--output "{name}" is given twice')
    kept = [output.name for output in declared if output.kind in ARTIFACTS]
    for option, given, known in (("artifact", artifacts, kept), ("deliver", places, names)):
        taken: dict[str, str] = {}
        for name, place in given.items():
            if name not in known:
                what = "file or directory output" if option == "artifact" else "output"
                raise BadOption(f'--{option} "{name}={place}": there is no {what} "{name}"')
            other = taken.setdefault(_place(place), name)
            if other != name:
                raise BadOption(f'--{option}: "{other}" and "{name}" cannot both be kept at {place}')


def _place(where: str) -> str:
    """A place in one spelling."""
    scheme, found, rest = where.partition("://")
    return f"{scheme}://{rest.rstrip('/')}" if found else os.path.abspath(where)


def prepare_outputs(outputs: Sequence[Output], folder: str) -> dict[str, Any]:
    """Before the command starts: what an earlier attempt left must not pass for what this one writes.

    In the outputs' own folder it is removed. Elsewhere it may be what the program works on: it is remembered, and
    counts only once it was written again.
    """
    remembered = {}
    for output in outputs:
        if output.path is None:
            discard(os.path.join(folder, output.name))
            discard(os.path.join(folder, f"{output.name}.uri"))
            discard(os.path.join(folder, f"{output.name}{NOTE}"))
        else:
            remembered[output.name] = _fingerprint(output.path)
    return remembered


def collect(
    outputs: Sequence[Output], folder: str, before: Mapping[str, Any], engine: str = "none"
) -> dict[str, KeptOutput]:
    """The values that the program wrote, checked. Files and directories are only seen to be there."""
    values = {}
    for output in outputs:
        path = output.place(folder)
        if not os.path.lexists(path):
            raise BadOutput(f'the output "{output.name}" was not written: there is no {path}')
        if before.get(output.name) is not None and before[output.name] == _fingerprint(path):
            raise BadOutput(
                f'the output "{output.name}" was not written: {path} is as it was before the command started'
            )
        if output.kind in ARTIFACTS:
            if os.path.isdir(path) != (output.kind == "directory"):
                raise BadOutput(f'the output "{output.name}" should be a {output.kind}, and {path} is not')
            continue
        try:
            if not os.path.isfile(path):
                # To open a pipe would wait for its writer, for ever.
                raise ValueError(f"{path} is no file")
            if (why := why_secret(os.path.realpath(path), os.stat(path))) is not None:
                raise ValueError(f"{path} must not be kept: {why}")
            if os.path.getsize(path) > VALUE_MOST:
                raise ValueError(f"{path} is larger than {VALUE_MOST} bytes; make it an output of type file")
            with open(path, encoding="utf-8", newline="") as file:
                text = file.read()
        except (OSError, ValueError) as refusal:
            raise BadOutput(f'the output "{output.name}" cannot be read as text: {refusal}') from None
        text = text[:-1] if text.endswith("\n") else text
        parse_value(output, text)
        if engine == "kubeflow":
            number_for_kubeflow(output, text)
        values[output.name] = KeptOutput(type=output.kind, value=text, sha256=text_digest(text))
    return values


class OutputWatch:
    """Whether processes that the command left behind were at work on an output when they had to be killed.

    That is so when it changed while only they were left, when one of them has it open for writing, and when one is a
    shell whose words name it. What none of these shows cannot be known: a daemon may well be left behind.
    """

    def __init__(self, outputs: Sequence[Output], folder: str) -> None:
        self._places = {output.name: os.path.realpath(output.place(folder)) for output in outputs}
        self._words = {output.name: f"GPUFLOW_OUTPUTS/{output.name}" for output in outputs if output.path is None}
        self._looks: dict[str, Any] = {}
        self._killed: container.Processes = {}
        self._said: str | None = None

    def look(self) -> None:
        """What the outputs are now."""
        self._looks = {name: _fingerprint(place) for name, place in self._places.items()}

    def note_killed(self, found: container.Processes) -> None:
        """These are about to be killed."""
        self._killed = found
        for process in found.values():
            held = container.files_open_for_writing(process.pid)
            words = container.shell_words(process.pid).replace("}", "")
            for name, place in self._places.items():
                if any(path == place or path.startswith(f"{place}/") for path in held):
                    self._say(name, f"{process} had it open for writing")
                elif any(_names(words, text) for text in (place, self._words.get(name)) if text):
                    self._say(name, f"the words of {process} name it")

    def damage(self) -> str | None:
        """Why an output may be incomplete after the processes were killed; None when there is no sign of it."""
        for name, place in self._places.items():
            if self._looks.get(name) != _fingerprint(place):
                self._say(
                    name,
                    f"it changed after the command had ended, while {container.format_processes(self._killed)} ran",
                )
        return self._said

    def _say(self, name: str, why: str) -> None:
        self._said = self._said or (
            f'the output "{name}" may be half written: the command ended with 0 and left processes behind, which had '
            f"to be killed, and {why}; let the command wait for them"
        )


def _names(words: str, path: str) -> bool:
    """Whether words name a path or something below it, and not only one that begins alike."""
    import re

    return re.search(rf"{re.escape(path)}(?![\w.-])", words) is not None


def select_outputs(marker: Mapping[str, KeptOutput], declared: Sequence[Output]) -> dict[str, KeptOutput]:
    """Of a marker's outputs those that the step has, as it has them; BadOutput for one of another type."""
    given = {}
    for output in declared:
        if (kept := marker.get(output.name)) is None:
            continue
        if kept.value is not None and output.kind not in ARTIFACTS:
            parse_value(output, kept.value)
        elif kept.type != output.kind:
            raise BadOutput(f'its output "{output.name}" is a {kept.type}, and should be a {output.kind}')
        given[output.name] = kept if kept.type == output.kind else KeptOutput(**{**kept.plain(), "type": output.kind})
    return given


def deliver(
    marker: Mapping[str, KeptOutput], engine: str, folder: str, places: Mapping[str, str], xcom: str = XCOM
) -> None:
    """Put the outputs where the engine looks. Works from the success marker alone, so that it can be done again."""
    values = {name: output.value for name, output in marker.items() if output.value is not None}
    uris = {name: output.uri for name, output in marker.items() if output.uri}
    # An entry that is there is replaced, and a link is not followed.
    for name, text in values.items() if folder else ():
        files.write(os.path.join(folder, name), text.encode("utf-8"))
    for name, uri in uris.items() if folder else ():
        files.write(os.path.join(folder, f"{name}.uri"), uri.encode("utf-8"))  # beside what may lie under its name
        facts = json.dumps(marker[name].facts(), ensure_ascii=False, indent=1)
        files.write(os.path.join(folder, f"{name}{NOTE}"), facts.encode("utf-8"))
    for name, place in places.items():
        if name in values or name in uris:
            _write(place, values[name] if name in values else uris[name])
    if engine == "airflow":
        kinds = {name: parse_value(Output(name, marker[name].type, None), text) for name, text in values.items()}
        more = {ARTIFACTS_ENTRY: {name: marker[name].facts() for name in uris}} if uris else {}
        _write(xcom, json.dumps({**uris, **kinds, **more}, sort_keys=True, ensure_ascii=False))


def parse_value(output: Output, text: str) -> Any:
    """The value a text stands for, or BadOutput."""
    try:
        if output.kind == "string":
            return text
        if output.kind == "int":
            return int(text.strip())
        if output.kind == "float":
            return _finite(text.strip())
        words = text.strip().lower() if output.kind == "bool" else text
        value = json.loads(words, parse_float=_finite, parse_constant=_finite)
        if output.kind == "bool" and not isinstance(value, bool):
            raise ValueError
        return value
    except OverflowError as refusal:
        raise BadOutput(f'the output "{output.name}" of type {output.kind} is {text[:80]!r}: {refusal}') from None
    except (ValueError, RecursionError):
        raise BadOutput(f'the output "{output.name}" is not of type {output.kind}: {text[:80]!r}') from None


def _finite(text: str) -> float:
    """A number that JSON has too: engines and readers of other languages go by that."""
    value = float(text)
    if value != value or value in (float("inf"), float("-inf")):
        raise OverflowError("JSON has no NaN and no infinity, and whoever reads it there fails; make it a string")
    return value


def number_for_kubeflow(output: Output, text: str) -> None:
    """BadOutput for a number or a bool that Python reads and KFP does not, or reads as another one.

    KFP's launcher reads it with Go's strconv after the step has ended well (metadata/converter.go, TextToPbValue), and
    hands every number on as a double in JSON.
    """
    import re

    why = None
    bare = "" if re.search("[\x1c-\x1f]", text) else text.strip()
    if output.kind == "int":
        if not re.fullmatch(r"[-+]?[0-9]+", bare):
            why = "Kubeflow reads whole numbers of the digits 0 to 9 only"
        elif abs(int(bare)) > KUBEFLOW_EXACT:
            why = f"Kubeflow's numbers are exact up to {KUBEFLOW_EXACT} only; declare the output as string"
    elif output.kind == "float":
        if not bare.isascii() or not bare:
            why = "Kubeflow reads numbers of the digits 0 to 9 only"
    elif output.kind == "bool" and bare not in ("true", "True", "TRUE", "false", "False", "FALSE"):
        why = "Kubeflow reads true and false only"
    if why is not None:
        raise BadOutput(f'the output "{output.name}" of type {output.kind} is {text[:80]!r}: {why}')


def _fingerprint(path: str) -> Any:
    """What changes when something is written again; None for nothing."""
    try:
        looks = [_status(path)]
    except OSError:
        return None
    for folder, folders, names in os.walk(path):
        folders.sort()
        for name in sorted([*folders, *names]):
            try:
                looks.append((os.path.join(folder, name), *_status(os.path.join(folder, name))))
            except OSError:
                continue
    return looks


def _status(path: str) -> tuple[Any, ...]:
    status = os.stat(path)
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_ctime_ns, status.st_size


def _write(path: str, text: str) -> None:
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, "w", encoding="utf-8", newline="") as file:
        file.write(text)
