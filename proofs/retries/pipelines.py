"""The pipeline of a case, and the site it is compiled for."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.layout import IMAGES
from tests.targets.argo.cluster.stage import CLAIM, MOUNT

from .contract import INIT, Case, kind_of, starts_program

PUPPET = Path(__file__).with_name("puppet.py").read_text()
STEP = "work"
TIMEOUT = 45
"""Seconds: a fault that is not a timeout comes earlier, also on a busy machine."""
PLACE = "gpuflow.test/place"
"""The label of the node that a case on a simulated node goes to."""
LATE_IMAGE = "gpuflow.test/late-{name}:1"
SITE_ALONE = """\
apiVersion: gpuflow/v1
kind: Site
name: proof
extends: nvidia
"""
SITE = SITE_ALONE + f"runtime: {{state: {MOUNT}/store}}\n"
SITE_CLOSED = SITE.replace("/store", "/closed")
"""Nobody may write there: the supervisor cannot work."""
TAINT, TAINTS = "gpuflow.test/storm", 8
EVERYTHING = {"operator": "Exists", "effect": "NoExecute"}
VOLUME_THAT_HOLDS_IT = "96Mi"
DISK_LIMITS = {"argo": "160Mi", "airflow": "32Mi"}
"""Below what the program writes, but not below Argo's own: it copies argoexec, 108 MB, into every pod."""


def pipeline(case: Case) -> str:
    """One step with the case's budgets, whose program plays the case's acts."""
    folder = f"{MOUNT}/plays/{case.name}"
    step: dict[str, Any] = {
        "image": IMAGES["gpuflow"],
        "image_pull_policy": "IfNotPresent",
        "command": [
            "python3",
            "-c",
            PUPPET,
            "main",
            folder,
            *map(_played, filter(starts_program, case.acts)),
        ],
        "cpu": {"request": "20m"},
        "memory": {"request": "24Mi", "limit": "160Mi"},
        "volumes": {MOUNT: {"claim": CLAIM}},
        "termination_grace": "6s",
        "kubernetes": {},
    }
    retry = _retry(case)
    if retry is not None:
        step["retry"] = retry
    if case.has("timeout"):
        step["timeout"] = f"{TIMEOUT}s"
    if case.has("disk"):
        words = {act.partition(":")[2] for act in case.acts if kind_of(act) == "disk"}
        step["volumes"]["/scratch"] = {"empty_dir": VOLUME_THAT_HOLDS_IT if "pod" in words else "8Mi"}
        if words & {"layer", "pod"}:
            step["ephemeral_storage"] = {"request": "1Mi", "limit": DISK_LIMITS[case.engine]}
    if case.has(*INIT):
        step["init_containers"] = [
            {
                "name": "before",
                "image": IMAGES["gpuflow"],
                "command": ["python3", "-c", PUPPET, "init", folder, *(_before(act) for act in case.acts)],
                "cpu": {"request": "10m"},
                "memory": {"request": "24Mi", "limit": "160Mi"},
                "volumes": {MOUNT: {"claim": CLAIM}},
            }
        ]
    # A taint that is meant for one case passes the others by.
    step["kubernetes"]["tolerations"] = _others(case) if case.has("taint") else [EVERYTHING]
    for key, value in case.step.items():
        step[key] = {**step[key], **value} if isinstance(step.get(key), dict) and isinstance(value, dict) else value
    if not step["kubernetes"]:
        del step["kubernetes"]
    document = {"apiVersion": "gpuflow/v1", "kind": "Pipeline", "name": case.name, "steps": {STEP: step}}
    return yaml.safe_dump(document, sort_keys=False)


def taint_of(case: Case) -> str:
    """The taint that a case does not tolerate; cases with the same one are not played at the same time."""
    return f"{TAINT}-{zlib.crc32(case.name.encode()) % TAINTS}"


def _others(case: Case) -> list[dict[str, str]]:
    keys = (f"{TAINT}-{number}" for number in range(TAINTS))
    return [{"key": key, "operator": "Exists", "effect": "NoExecute"} for key in keys if key != taint_of(case)]


def _retry(case: Case) -> Any:
    if case.plain:
        return case.failures
    if not (case.failures or case.interruptions or case.final):
        return None
    retry: dict[str, Any] = {"failures": case.failures, "interruptions": case.interruptions}
    if case.final:
        retry["final_exit_codes"] = list(case.final)
    return retry


def _played(act: str) -> str:
    """What the program itself does."""
    kind, _, word = act.partition(":")
    fills = {"volume": "fill:/scratch", "layer": "fill:/tmp", "pod": "fill:/scratch"}
    plays = {"oomgroup": "eat", "wait": "go:0", "crash": "await:143", "supervisor": "await:143"}
    if kind in ("exit", "kill", "oom"):
        return act
    if kind == "disk":
        return fills[word]
    return plays.get(kind, f"await:{word or 143}")


def _before(act: str) -> str:
    """What the init container of the pod does to which an act happens."""
    kind, _, word = act.partition(":")
    return f"exit:{word}" if kind == "init-exit" else "await:143" if kind in INIT else "exit:0"
