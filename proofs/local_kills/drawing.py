"""Random pipelines whose results follow from their document: what is drawn, and with which chance."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

PROGRAM = Path(__file__).with_name("program.py")
ON_TERM = ("save", "save", "die", "zero", "ignore")
VALUES = ("int", "float", "bool", "string", "json")
HEAD = {"apiVersion": "gpuflow/v1", "kind": "Pipeline"}
DEFAULTS = {"image": "registry.example.com/kills:1", "cpu": "100m", "memory": "64Mi"}
MISSING = {"int": -1, "float": -0.5, "bool": False, "string": "none", "json": [0]}
Step = dict[str, Any]


class Drawing:
    """One pipeline while it is drawn. `values` and `files` are what later steps may take, `lists` what they repeat."""

    def __init__(self, chance: random.Random, name: str, depth: int = 0) -> None:
        self.chance, self.name, self.depth = chance, name, depth
        self.steps: dict[str, Step] = {}
        self.values: list[str] = []
        self.numbers: list[str] = []
        self.files: list[str] = []
        self.lists: list[str] = []
        self.params: dict[str, Any] = {}
        self.approve: list[str] = []
        self.timeouts = 0

    # -- parts

    def command(self, name: str, outputs: dict[str, str], *words: Any, save: int = 0, **more: Any) -> Step:
        """What the program of a step is given, and the step's command, outputs and inputs."""
        chance = self.chance
        on_term = chance.choice(ON_TERM)
        if not outputs and on_term == "zero":  # an early end with 0 would be a success
            on_term = "die"
        ticks = chance.choice((0, 2, 6, 12, 20) if not save else (12, 20, 32))
        spec = {"ticks": ticks, "save": save, "on_term": on_term, "fails": "", "helper": chance.random() < 0.1}
        spec |= {"outputs": outputs, **more}
        # Inside a sub-pipeline the number tells its copies apart.
        taken = [{"param": "n"}] if self.depth else []
        taken += [{"output": each} for each in chance.sample(self.values, min(len(self.values), chance.randint(0, 3)))]
        files = chance.sample(self.files, min(len(self.files), chance.randint(0, 2)))
        inputs = {f"/in/{number}": {"output": each} for number, each in enumerate(files)}
        step: Step = {
            "command": [
                *(sys.executable, "-I", "-S", str(PROGRAM), name, json.dumps(spec)),
                *words,
                *taken,
                *(["--", *inputs] if inputs else []),
            ],
            "termination_grace": "2s",
        }
        if outputs:
            step["outputs"] = outputs
        if inputs:
            step["inputs"] = inputs
        if save:
            del step["termination_grace"]
            step["checkpoint"] = {"path": "/ckpt", "store": f"s3://models/{name}", "grace": "4s"}
        return step

    def outputs(self) -> dict[str, str]:
        chance = self.chance
        found = {f"v{number}": chance.choice(VALUES) for number in range(chance.choice((0, 1, 1, 2)))}
        if chance.random() < 0.3:
            found["f"] = chance.choice(("file", "directory"))
        return found

    def program(self, name: str, outputs: dict[str, str], *words: Any, **more: Any) -> Step:
        """A step with a program, its budgets and its faults."""
        chance = self.chance
        fails = chance.choices(("", "once", "always"), (20, 5, 0.6))[0]
        given = {"save": chance.choice((0, 0, 4, 7)), **({"fails": fails} if fails else {}), **more}
        step = self.command(name, outputs, *words, **given)
        failures = chance.randint(1 if fails == "once" else 0, 2)
        if failures or chance.random() < 0.7:
            step["retry"] = {"failures": failures, "interruptions": chance.choice((0, 1, 3, 30)), "backoff": "0s"}
            if fails == "always":
                step["retry"]["final_exit_codes"] = [7]
        return step

    def add(self, name: str, step: Step) -> None:
        """Put the step in, and what it makes among what others may take."""
        chance, needs = self.chance, [each for each in self.steps if self.chance.random() < 0.15]
        if needs:
            step["needs"] = needs[:2]
        inside = self.depth > 0
        if chance.random() < 0.15 and "for_each" not in step:
            condition = ["params.flag"] + [f"steps.{each} > 400" for each in self.numbers]
            step["when"] = chance.choice(condition if not inside else [*condition, "params.n > 3"])
        if self.takes_what_has_no_default(step):
            step["if_skipped"] = "skip"
        elif chance.random() < 0.15 and "when" not in step:
            step["if_skipped"] = "run"
        outputs = step.get("outputs", {})
        if outputs:  # what is skipped, or fails, has a value for those that run all the same
            step["outputs"] = {
                output: {"type": kind, "default": MISSING[kind]} if kind in MISSING else kind
                for output, kind in outputs.items()
            }
        for output, kind in outputs.items():
            full = f"{name}.{output}"
            if kind in ("file", "directory"):
                # A file that was not made has no default: only what always runs gives one.
                if not any(word in step for word in ("when", "if_skipped", "needs", "inputs")):
                    self.files.append(full)
                continue
            self.values.append(full)
            if kind in ("int", "float") and "for_each" not in step:
                self.numbers.append(full)
            if kind == "json" and "for_each" not in step:
                self.lists.append(full)
        self.steps[name] = step

    def takes_what_has_no_default(self, step: Step) -> bool:
        words = [word for word in step["command"] if isinstance(word, dict)]
        taken = [word["output"].partition(".")[0] for word in words if "output" in word]
        return "inputs" in step or any("pipeline" in self.steps[each] for each in taken)

    # -- kinds of steps

    def plain(self, name: str) -> None:
        self.add(name, self.program(name, self.outputs()))

    def list_maker(self, name: str) -> None:
        self.add(name, self.program(name, {"l": "json"}))

    def items(self) -> dict[str, Any]:
        """What a step is repeated for."""
        chance = self.chance
        if self.lists and chance.random() < 0.6:
            return {"i": {"output": chance.choice(self.lists)}}
        kinds: tuple[dict[str, Any], ...] = (
            {"i": [1, 2, 5]},
            {"i": {"range": chance.randint(1, 3)}},
            {"i": ["a b", "$(c)"], "k": [1, 2]},
            {"i": {"param": "words"}} if not self.depth else {"i": [7]},
        )
        return chance.choice(kinds)

    def fan_out(self, name: str) -> None:
        items = self.items()
        step = self.program(name, self.outputs(), *({"item": each} for each in items))
        step["for_each"] = items
        if self.chance.random() < 0.3:
            step["parallel"] = self.chance.randint(1, 2)
        if "output" in items["i"] and self.chance.random() < 0.3:
            step["when"] = "item.i != '9'"
        self.add(name, step)

    def sub_pipeline(self, name: str) -> None:
        chance = self.chance
        inner = Drawing(chance, "inner", self.depth + 1)
        inner.fill(chance.randint(1, 2), INSIDE)
        document = inner.document()
        made = [each for each in inner.values if "for_each" not in inner.steps[each.partition(".")[0]]]
        outputs = {}
        if made:
            document["outputs"] = {"r": {"output": chance.choice(made)}}
            step_name, output = document["outputs"]["r"]["output"].split(".")
            outputs["r"] = inner.steps[step_name]["outputs"][output]["type"]
        step: Step = {"pipeline": document, "params": {"n": 4}}
        if chance.random() < 0.6:
            items = self.items()
            if set(items) == {"i"} and "param" not in items["i"]:
                step["for_each"] = {"i": items["i"]} if isinstance(items["i"], dict) else {"i": [1, 2, 5]}
                step["params"] = {"n": {"item": "i"}}
        for output, kind in outputs.items():
            self.values.append(f"{name}.{output}")
            if kind == "json" and "for_each" not in step:
                self.lists.append(f"{name}.{output}")
        self.steps[name] = step

    def gang(self, name: str) -> None:
        """Two or three ranks, each its own program; the outputs are those of rank 0."""
        step = self.program(name, self.outputs(), save=0, on_term=self.chance.choice(("die", "ignore")), gang=True)
        self.add(name, {**step, "gang": self.chance.randint(2, 3), "cpu": "10m"})

    def approval(self, name: str) -> None:
        self.approve.append(name)
        self.steps[name] = {"approval": "go on?", "needs": list(self.steps)[-1:]} if self.steps else {"approval": "go?"}

    def slow(self, name: str) -> None:
        """A step that always takes longer than it may."""
        step = self.command(name, {}, ticks=4000, helper=False)
        self.add(name, {**step, "timeout": "1s"})

    # -- the whole

    def fill(self, count: int, kinds: dict[str, float]) -> None:
        names = [f"{kind[:1]}{number}" for number, kind in enumerate(kinds)]
        assert len(set(names)) == len(kinds)
        for number in range(count):
            kind = self.chance.choices([*kinds], [*kinds.values()])[0]
            draw: Callable[[str], None] = getattr(self, kind)
            draw(f"{kind.partition('_')[0]}{number}")

    def document(self) -> dict[str, Any]:
        params = {"flag": {"type": "bool", "default": self.chance.random() < 0.5}}
        if self.depth:
            params["n"] = {"type": "int"}
        else:
            params["words"] = {"type": "json", "default": ["x", {"y": 1}]}
        return {**HEAD, "name": self.name, "params": params, "defaults": DEFAULTS, "steps": self.steps}

    def exit_steps(self) -> dict[str, Step]:
        found = {}
        # Of steps that may not have run only what has a default.
        sure = [each for each in self.values if "pipeline" not in self.steps[each.partition(".")[0]]]
        self.files, self.values = [], sure
        for on in self.chance.sample(("always", "success", "failure"), self.chance.choice((0, 1, 1, 2))):
            step = self.command(f"exit-{on}", {"v": self.chance.choice(VALUES)})
            found[f"exit-{on}"] = {**step, **({} if on == "always" else {"on": on})}
        return found


KINDS = {
    "plain": 5.0,
    "list_maker": 3.0,
    "fan_out": 4.0,
    "sub_pipeline": 2.0,
    "gang": 1.5,
    "approval": 0.5,
    "slow": 0.25,
}
"""The kinds of steps, and how often each is drawn."""
INSIDE = {kind: often for kind, often in KINDS.items() if kind in ("plain", "list_maker", "fan_out")}


def draw(seed: int, number: int) -> tuple[dict[str, Any], list[str]]:
    """A pipeline, and the questions in it."""
    drawing = Drawing(random.Random(f"{seed}-{number}"), "kills")
    drawing.fill(drawing.chance.randint(2, 4), KINDS)
    document = drawing.document()
    if exits := drawing.exit_steps():
        document["exit"] = exits
    if drawing.chance.random() < 0.2:
        document["parallel"] = drawing.chance.randint(1, 3)
    return document, drawing.approve
