"""Programs that stand in for those of the examples: they say what they were given and leave the outputs they owe."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from gpuflow.spec.pipeline import Pipeline
from gpuflow.spec.step import Step
from gpuflow.spec.text import parts_of
from tests.cluster import images

IMAGE = "gpuflow.test/examples:1"
TEXT = 'it says "{{workflow.name}}" and $(HOME) for $$5'
"""What a text output holds: no engine may touch it."""
VALUES = {"int": "3", "float": "0.95", "bool": "true", "string": TEXT, "json": '["de","en"]'}
PROGRAM = """\
#!/usr/local/bin/python3
import json, os, pathlib, sys

OUTPUTS = json.loads(%r)
print("given", json.dumps(sys.argv[1:]), flush=True)
folder = os.environ.get("GPUFLOW_OUTPUTS")
for name, (kind, path, text) in OUTPUTS.items() if folder else ():
    place = pathlib.Path(path or os.path.join(folder, name))
    if not place.parent.is_dir():
        continue  # an output of another step that starts this program
    if kind == "directory":
        place.mkdir(exist_ok=True)
        place = place / "weights"
    place.write_text(text)
"""
INTERPRETERS = ("python", "python3", "sh")


def register(pipelines: list[Pipeline], values: Mapping[str, str] = VALUES, name: str = "examples") -> str:
    """Make an image known that holds a stand-in for every program of these pipelines; its name."""
    scripts: dict[str, str] = {}
    for place, outputs in sorted(_programs(pipelines, values).items()):
        scripts[place.lstrip("/")] = PROGRAM % json.dumps(outputs, sort_keys=True)
    images.CONTENTS[name] = lambda: _with(images.CONTENTS["gpuflow"](), scripts)
    images.IMAGES[name] = f"gpuflow.test/{name}:1"
    images.archive.cache_clear()
    return name


def _with(content: images.Content, scripts: Mapping[str, str]) -> images.Content:
    return replace(content, scripts={**content.scripts, **scripts})


def _programs(pipelines: list[Pipeline], values: Mapping[str, str]) -> dict[str, dict[str, list[str | None]]]:
    """Where a program must stand -> the outputs of all steps that start it."""
    found: dict[str, dict[str, list[str | None]]] = {}
    for _, step in _steps(pipelines):
        for place in _places(step):
            found.setdefault(place, {}).update(_owed(step, values))
        for helper in step.sidecars:
            for word in helper.command[:1]:
                found.setdefault(f"/usr/local/bin/{word}", {})
    return found


def _steps(pipelines: list[Pipeline]) -> Iterator[tuple[Pipeline, Step]]:
    for pipeline in pipelines:
        for name in (*pipeline.steps, *pipeline.exit):
            step = pipeline.effective(name)
            if step.pipeline is not None:
                yield from _steps([step.pipeline])
            else:
                yield pipeline, step


def _places(step: Step) -> Iterator[str]:
    """The file that a step's command starts: `torchrun …`, `python x.py …`, `python -m x …`."""
    words = [part for word in step.command for part in parts_of(word)[:1] if isinstance(part, str)]
    folder = (step.working_dir or "").rstrip("/")
    if not words:
        return
    if words[0] not in INTERPRETERS:
        yield f"/usr/local/bin/{words[0]}"
    elif words[0] != "sh" and words[1].endswith(".py"):
        yield f"{folder}/{words[1]}"
    elif words[1] == "-m":
        yield f"{folder}/{words[2]}.py"


def _owed(step: Step, values: Mapping[str, str]) -> dict[str, list[str | None]]:
    owed: dict[str, list[Any]] = {}
    for name, output in step.outputs.items():
        owed[name] = [output.type, output.path, values.get(output.type, "weights")]
    return owed
