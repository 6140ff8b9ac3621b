"""What a run has left: how each step ended, its outputs by their bytes, its checkpoints; and what must never be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gpuflow.local.record import SUCCEEDED, RunFolder

from .program import hash_tree, state_after
from .striking import HARMLESS, Scene, Turn


def found_in(path: Path) -> dict[str, Any]:
    """Every step and copy of a run that was reached: its state and its outputs."""
    run = RunFolder(path).read()
    return {
        key: [step.state, {name: bytes_of(text, path) for name, text in sorted(step.outputs.items())}]
        for key, step in sorted(run.steps.items())
    }


def bytes_of(value: Any, run: Path) -> Any:
    """An output as it can be compared between runs: the hash of its files where it names a place of the run."""
    if isinstance(value, list):
        return [bytes_of(each, run) for each in value]
    if not isinstance(value, str):
        return value
    if value.startswith("[") and str(run) in value:
        return [bytes_of(each, run) for each in json.loads(value)]
    place = value.removeprefix("file://")
    return f"files {hash_tree(Path(place))}" if place.startswith(str(run)) else value


def said_in(turn: Turn, run: Path) -> list[Any]:
    """The steps as the run's own document says them."""
    return [
        [step["name"], step["state"], {name: bytes_of(value, run) for name, value in sorted(step["outputs"].items())}]
        for step in turn.said.get("steps", ())
    ]


def checkpoints_in(path: Path, faults: list[str]) -> dict[str, str]:
    """The newest checkpoint of each step; faults: those that are not whole."""
    newest: dict[str, tuple[str, str]] = {}
    for manifest in sorted((path / "checkpoints").rglob("checkpoints/*/manifest.json")):
        files = list((manifest.parent / "files").rglob("state"))
        base = str(manifest.parent.parent.parent.relative_to(path / "checkpoints")).replace(path.name, "RUN")
        try:
            (file,) = files
            text = file.read_text()
            said = json.loads(text)
            if said["state"] != state_after(said["seed"], said["step"]):
                faults.append(f"the checkpoint {manifest.parent} is of no state of its work: {text}")
        except (ValueError, OSError, KeyError) as fault:
            faults.append(f"the checkpoint {manifest.parent} cannot be read: {fault}")
            continue
        newest[base] = max(newest.get(base, ("", "")), (manifest.parent.name, text))
    return {base: text for base, (_, text) in newest.items()}


def lines_of(scene: Scene, name: str) -> list[str]:
    file = scene.folder / name
    return file.read_text().splitlines() if file.exists() else []


def has_succeeded(scene: Scene) -> bool:
    """Whether the run is over and good, also where its process was killed before it could say so."""
    path = scene.run_folder()
    return path is not None and RunFolder(path).read().state == SUCCEEDED


def faults_of_turn(scene: Scene, turn: Turn, expected: dict[str, Any], done: str) -> list[str]:
    """What must not be after any turn. `done`: how the undisturbed run ended."""
    found = []
    if turn.code not in HARMLESS or "Traceback" in turn.lines:
        found.append(f"gpuflow run ended with {turn.code}: {turn.lines[-2000:]}")
    if (turn.code == 0 or has_succeeded(scene)) and done != SUCCEEDED:
        found.append(f"FALSE SUCCESS: the run succeeded, and undisturbed it {done}")
    path = scene.run_folder()
    if path is None:
        return [*found, "it succeeded, and there is no run"] if turn.code == 0 else found
    if turn.code == 0 and not has_succeeded(scene):
        found.append("FALSE SUCCESS: gpuflow run ended with 0, and its journal does not say that it succeeded")
    finished = {line.split()[1] for line in lines_of(scene, "journal") if line.startswith("done ")}
    steps = RunFolder(path).read().steps
    programs = {key for key in steps if steps[key].attempts}
    for key, (state, outputs) in found_in(path).items():
        if state != SUCCEEDED or key.startswith("exit-"):
            continue
        if key in programs and key not in finished:
            found.append(f"FALSE SUCCESS: {key} succeeded, and its program never came to its end")
        if expected.get(key) != [state, outputs]:
            found.append(f"FALSE SUCCESS: {key} succeeded with {outputs}, and undisturbed it is {expected.get(key)}")
    return found


def faults_at_end(scene: Scene) -> list[str]:
    """What must not have been at any time."""
    found = [f"TWICE AT ONCE: {line}" for line in lines_of(scene, "twice")]
    found += [f"CORRUPT: {line}" for line in lines_of(scene, "corrupt")]
    if left := scene.left():
        found.append(f"processes {left} still run after the end")
    path = scene.run_folder()
    succeeded = set[str]()
    for entry in RunFolder(path).events() if path is not None else ():
        if entry["event"] == "again":
            succeeded = {key for key in succeeded if key.split(".")[0].split("@")[0] not in entry["steps"]}
        elif entry["event"] == "started" and entry["step"] in succeeded:
            found.append(f"{entry['step']} was started again after it had succeeded")
        elif entry["event"] == "ended" and entry["state"] == SUCCEEDED:
            succeeded.add(entry["step"])
    return found


def differences(kind: str, before: Any, after: Any) -> list[str]:
    """What is not as undisturbed."""
    if isinstance(before, dict) and isinstance(after, dict):
        return [
            f"{kind} of {key}: undisturbed {before.get(key)}, here {after.get(key)}"
            for key in sorted({*before, *after})
            if before.get(key) != after.get(key)
        ]
    return [] if before == after else [f"{kind}: undisturbed {before}, here {after}"]
