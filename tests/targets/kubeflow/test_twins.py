"""Written twice, compiled twice, the same: gpuflow's IR against what kfp's own compiler makes of hand-written code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from kfp import compiler

from tests.targets.kubeflow.compiling import compiled
from tests.targets.kubeflow.normal_form import normal_form
from tests.targets.kubeflow.twins import flow, groups, pods, settings

TWINS = {
    "hello": (flow.HELLO, flow.hello),
    "params": (flow.PARAMS, flow.params),
    "chain": (flow.CHAIN, flow.chain),
    "handover": (flow.HANDOVER, flow.handover),
    "gate": (flow.GATE, flow.gate),
    "fixed fan-out": (flow.FIXED_FAN, flow.fixed_fan),
    "matrix": (flow.MATRIX, flow.matrix),
    "gather": (flow.GATHER, flow.gather),
    "found": (flow.FOUND, flow.found),
    "ending": (flow.ENDING, flow.ending),
    "nested": (flow.NESTED, flow.nested),
    "whole GPUs": (pods.GPU, pods.gpu),
    "slices": (pods.MIG, pods.mig),
    "shares": (pods.SHARED, pods.shared),
    "tries": (pods.TRIES, pods.tries),
    "queued": (pods.QUEUED, pods.queued),
    "files": (pods.FILES, pods.files),
    "variables": (pods.VARIABLES, pods.variables),
    "placed": (pods.PLACED, pods.placed),
    "loops in loops": (groups.LOOPS, groups.loops),
    "found and fixed": (groups.FOUND_AND_FIXED, groups.found_and_fixed),
    "some items": (groups.SOME_ITEMS, groups.some_items),
    "all items or none": (groups.ALL_OR_NONE, groups.all_or_none),
    "guarded": (groups.GUARDED, groups.guarded),
    "copies": (groups.COPIES, groups.copies),
    "maps": (groups.MAPS, groups.maps),
    "kinds": (groups.KINDS, groups.kinds),
    "twice": (settings.TWICE, settings.twice),
    "chosen": (settings.CHOSEN, settings.chosen),
    "amounts": (settings.AMOUNTS, settings.amounts),
    "again": (settings.AGAIN, settings.again),
    "marked": (settings.MARKED, settings.marked),
    "odd words": (settings.WORDS, settings.words),
}


def by_hand(function: Any, folder: Path) -> list[dict[str, Any]]:
    path = folder / "hand.yaml"
    compiler.Compiler().compile(function(), str(path))
    return list(yaml.safe_load_all(path.read_text()))


@pytest.mark.parametrize("name", TWINS)
def test_gpuflow_compiles_to_what_a_kfp_user_would_write(name: str, tmp_path: Path) -> None:
    source, function = TWINS[name]
    ours = normal_form(list(yaml.safe_load_all(compiled(source))))
    assert ours == normal_form(by_hand(function, tmp_path))
