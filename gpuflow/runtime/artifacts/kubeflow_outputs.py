"""A step's artifacts as Kubeflow sees them: what KFP's launcher is told, so that it records them in ML Metadata.

The launcher takes an artifact only at a place below the root of the run, where it also uploads whatever lies at the
local path for that place; an artifact elsewhere fails the step, and one that another step takes is downloaded before
its command starts (launcher_v2.go, uploadOutputArtifacts and downloadArtifacts, 2.17). So the files stay where they are
kept, and KFP's place gets a *pointer*: a small file that names them. It costs one small upload, shows what it points at
where people look, and lets other steps name the artifact as their input without a second transfer. What KFP's user
interface reads itself (HTML, Markdown) and what is handed over to KFP's own components is left as files.
"""

from __future__ import annotations

import json
import os

from gpuflow.runtime.base import files
from gpuflow.runtime.base.files import discard
from gpuflow.runtime.base.options import BadOption

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from typing import Any

    from gpuflow.runtime.base.records import KeptOutput

METRICS, CLASSIFICATION = "metrics", "classification-metrics"
KINDS = ("dataset", "model", METRICS, CLASSIFICATION, "html", "markdown", "artifact")
SHOWN_KINDS = (METRICS, CLASSIFICATION, "html", "markdown")
"""What KFP's user interface reads itself: such files are small, and left for the launcher."""
POINTER = "gpuflow-artifact"
"""The key by which a pointer is known."""
POINTER_MOST = 64 << 10
METRICS_MOST = 8 << 20
_MOUNTS = {"gs://": "/gcs/", "s3://": "/s3/", "minio://": "/minio/"}
"""Where the launcher looks for what belongs to a URI (LocalPathForURI)."""


class Task:
    """What KFP's launcher says of the task: its `{{$}}`."""

    def __init__(self, text: str) -> None:
        try:
            outputs = json.loads(text)["outputs"]
            self.answer = str(outputs["outputFile"])
            self._artifacts = {
                name: found["artifacts"][0]
                for name, found in outputs.get("artifacts", {}).items()
                if found["artifacts"]
            }
        except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
            raise BadOption(f"--kubeflow is not what KFP's launcher says of a task: {error!r}") from None

    def place(self, name: str) -> tuple[str, bool] | None:
        """Where the launcher looks for an artifact's files, and whether only the pod sees that place."""
        if (artifact := self._artifacts.get(name)) is None:
            return None
        if artifact.get("customPath"):
            return str(artifact["customPath"]), False
        uri = str(artifact.get("uri", ""))
        for scheme, mount in _MOUNTS.items():
            if uri.startswith(scheme):
                return mount + uri[len(scheme) :], True
        return (uri, False) if uri.startswith("/") else None


class Artifact:
    """One output: its kind, what the success marker says of it, and where its files lie."""

    def __init__(self, name: str, kind: str, kept: KeptOutput, path: str) -> None:
        self.name, self.kind, self.kept, self.path = name, kind, kept, path

    def metadata(self, about: Mapping[str, Any], say: Callable[[str], None]) -> dict[str, Any]:
        """Its properties in ML Metadata. KFP shows all those of metrics as metrics, so these have nothing else."""
        if self.kind == METRICS:
            return {"display_name": self.name, **_numbers(self._data(say), self.name, say)}
        facts = self.kept.facts()
        found: dict[str, Any] = {"display_name": self.name, "sha256": facts["sha256"], **about}
        called = {"gpuflow_uri": "uri", "bytes": "bytes", "files": "files"}
        found.update({name: facts[fact] for name, fact in called.items() if fact in facts})
        if self.kind == CLASSIFICATION:
            found.update(_curves(self._data(say), self.name, say))
        return found

    def pointer(self) -> dict[str, Any]:
        return {POINTER: {fact: value for fact, value in self.kept.facts().items() if fact != "files"}}

    def _data(self, say: Callable[[str], None]) -> Any:
        """The JSON that the step wrote; None, and a line that says so, where it is none."""
        try:
            return json.loads(files.read(self.path, METRICS_MOST))
        except (OSError, ValueError, RecursionError) as refusal:
            say(f'Kubeflow shows no numbers of the output "{self.name}": it cannot be read as JSON: {refusal}')
            return None


def needs_files(artifact: Artifact, handed: Collection[str]) -> bool:
    """Whether a pointer does not do."""
    return artifact.kind in SHOWN_KINDS or artifact.name in handed or artifact.kept.uri is None


def tell(
    task: Task,
    artifacts: Collection[Artifact],
    handed: Collection[str],
    about: Mapping[str, Any],
    say: Callable[[str], None],
) -> None:
    """Leave each artifact where the launcher looks, and write what it records about them.

    :param handed: outputs whose files KFP keeps too.
    :param about: what every artifact's properties say: pipeline, step, run.
    """
    told: dict[str, Any] = {}
    for artifact in artifacts:
        place = task.place(artifact.name)
        if place is None:
            say(f'KFP has no place for the output "{artifact.name}": it is recorded nowhere')
            continue
        _leave(artifact, needs_files(artifact, handed), *place)
        told[artifact.name] = {"artifacts": [{"name": artifact.name, "metadata": artifact.metadata(about, say)}]}
    if told:
        os.makedirs(os.path.dirname(task.answer), exist_ok=True)
        files.write(task.answer, json.dumps({"artifacts": told}, allow_nan=False).encode("utf-8"))


def _leave(artifact: Artifact, whole: bool, place: str, own: bool) -> None:
    """The files themselves, or a pointer to them. `own`: only this pod sees the place, so a link does."""
    os.makedirs(os.path.dirname(place), exist_ok=True)
    discard(place)
    if not whole:
        files.write(place, (json.dumps(artifact.pointer(), sort_keys=True) + "\n").encode("utf-8"))
    elif own:
        os.symlink(artifact.path, place)
    else:
        import shutil

        if os.path.isdir(artifact.path):
            shutil.copytree(artifact.path, place)
        else:
            shutil.copyfile(artifact.path, place)


def resolve_input(value: str, mounts: Collection[str] = tuple(_MOUNTS.values())) -> tuple[str, str | None]:
    """What an input's value leads to, and the type where that is known already. Where KFP's launcher has brought an
    artifact, that is the file or directory at its path, or what a pointer there points at."""
    if not value.startswith(tuple(mounts)):
        return value, None
    try:
        found = json.loads(files.read(value, POINTER_MOST))[POINTER]["uri"]
        if isinstance(found, str):
            return found, None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        pass  # the files themselves
    return value, "file" if os.path.isfile(value) else None


def _numbers(data: Any, name: str, say: Callable[[str], None]) -> dict[str, float]:
    """The metrics of a flat JSON object. What is no number has no place among KFP's metrics."""
    if data is None:
        return {}
    if not isinstance(data, dict):
        say(f'Kubeflow shows no metrics of the output "{name}": it is no JSON object')
        return {}
    numbers = {key: float(value) for key, value in data.items() if _is_number(value)}
    if left := sorted(set(data) - set(numbers)):
        say(f'Kubeflow shows only numbers: {", ".join(left)[:200]} of the output "{name}" left out')
    return numbers


def _is_number(value: Any) -> bool:
    """Whether KFP can record it: as a double, and neither NaN nor infinity, which its JSON does not have."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    try:
        number = float(value)
    except OverflowError:
        return False
    return number == number and abs(number) != float("inf")


def _curves(data: Any, name: str, say: Callable[[str], None]) -> dict[str, Any]:
    """A confusion matrix (`categories`, `matrix`) and a ROC curve (`fpr`, `tpr`, `threshold`) in KFP's format."""
    if data is None:
        return {}
    found: dict[str, Any] = {}
    try:
        if "matrix" in data:
            found["confusionMatrix"] = {
                "annotationSpecs": [{"displayName": str(category)} for category in data["categories"]],
                "rows": [{"row": [_finite(cell) for cell in row]} for row in data["matrix"]],
            }
        if "fpr" in data:
            at, fpr, tpr = data["threshold"], data["fpr"], data["tpr"]
            if not len(at) == len(fpr) == len(tpr):
                raise ValueError("threshold, fpr and tpr are not of one length")
            found["confidenceMetrics"] = [
                {"confidenceThreshold": _finite(at[n]), "falsePositiveRate": _finite(fpr[n]), "recall": _finite(tpr[n])}
                for n in range(len(at))
            ]
    except (TypeError, KeyError, ValueError) as refusal:
        say(f'Kubeflow shows nothing of the output "{name}": {refusal!r}')
        return {}
    if not found:
        say(f'Kubeflow shows nothing of the output "{name}": it has neither matrix nor fpr')
    return found


def _finite(value: Any) -> float:
    if not _is_number(value):
        raise ValueError(f"{value!r} is no number that Kubeflow can show")
    return float(value)
