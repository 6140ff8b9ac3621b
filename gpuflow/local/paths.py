"""Placeholder: absolute paths of the spec mapped into the run's folder."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gpuflow.plan import PlannedStep


@dataclass(frozen=True)
class PathMap:
    entries: Mapping[str, Path]

    def word(self, text: str) -> str:
        for path in sorted(self.entries, key=len, reverse=True):
            text = re.sub(rf"(?<![\w./-]){re.escape(path)}(?![\w.-])", lambda _: str(self.entries[path]), text)
        return text

    def told(self) -> list[str]:
        return [f"{path} is {folder}" for path, folder in self.entries.items()]


def paths_of(planned: PlannedStep, folder: Path, shared: Path) -> PathMap:
    step = planned.step
    entries = {path: folder / path.strip("/") for path in step.inputs}
    for path, volume in step.volumes.items():
        lasting = volume.claim or volume.new_claim
        entries[path] = shared / lasting if lasting else folder / path.strip("/")
    for output in step.outputs.values():
        if output.path and not any(output.path.startswith(f"{path}/") for path in entries):
            entries[output.path] = folder / output.path.strip("/")
    if step.checkpoint is not None:
        path = step.checkpoint.path
        if not any(path == each or path.startswith(f"{each}/") for each in entries):
            entries[path] = folder / path.strip("/")
    for each in entries.values():
        each.parent.mkdir(parents=True, exist_ok=True)
    return PathMap(entries)
