"""What is done to runs while they run, and what KFP does by itself: interruptions, ends by hand, caching, schedules."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.faults import Faults
from tests.cluster.kfp import ENDED, KfpError, is_step
from tests.cluster.layout import ADDRESS
from tests.cluster.waiting import until
from tests.targets.argo.cluster.stage import ROOT

from .playing import Player, Result, gpuflow, site_text
from .scenes import document

End = tuple[str, int]
"""The phase of a step, and how often its program was started."""
TAKEN = ("delete", "evict", "force_delete")
"""What is done to a pod from outside."""
WAYS = (*TAKEN, "out_of_memory")
ENDS: dict[tuple[str, str], dict[str, End]] = {
    **{
        ("always", way): {"plain": ("Failed", 1), "retried": ("Succeeded", 2), "supervised": ("Succeeded", 2)}
        for way in ("delete", "evict", "out_of_memory")
    },
}
"""How each step ends, and how often its program was started, where that is certain."""


def compiled(player: Player, name: str, file: str = "", settings: str = "", **more: Any) -> Path:
    """A scene's file, compiled; `more` is said on top of it. `settings`: those that the site says it has."""
    folder = player.folder / "acts"
    folder.mkdir(exist_ok=True)
    source, made = folder / f"{name}.yaml", folder / f"{name}.compiled.yaml"
    source.write_text(yaml.safe_dump({**document(file or name, name), **more}, sort_keys=False))
    keys = {"engines": {"kubeflow": {"retry": "always"}}} if settings == "always" else {}
    (folder / "site.yaml").write_text(yaml.safe_dump({**yaml.safe_load(site_text([])), **keys}))
    done = gpuflow("compile", str(source), "--target", "kubeflow", "-o", str(made), "--site", str(folder / "site.yaml"))
    assert done.returncode == 0, done.stderr
    return made


def step_pods(player: Player, run: str) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for pod in filter(is_step, player.kfp.pods(run)):
        found.setdefault(pod["metadata"]["labels"]["gpuflow.dev/step"], []).append(pod)
    return found


def runs(pod: Mapping[str, Any]) -> bool:
    """Whether the step's own program has begun."""
    states = {each["name"]: each for each in pod["status"].get("containerStatuses", ())}
    return "running" in states.get("main", {}).get("state", {})


def interrupt(player: Player, settings: str, way: str) -> Result:
    """Three steps, the first pod of each taken away while it runs; how often each was started, and how it ended."""
    name = f"interrupted-{settings}-{way.replace('_', '-')}"
    file = compiled(player, name, "interrupted", settings)
    started = time.monotonic()
    run = player.kfp.run(file, {"how": "hang" if way in TAKEN else "eat"}, name=name)
    if way in TAKEN:
        _take_away(player, run, way)
    state = player.kfp.wait([run], 420)[run]
    steps = outcomes(player, run, ["plain", "retried", "supervised"])
    for step, row in steps.items():
        row["starts"] = len(list((player.stage.shared / "struck" / run / step).glob("*")))
    return {
        "name": name,
        "run": run,
        "state": state,
        "seconds": round(time.monotonic() - started),
        "interruptions": 3,
        "steps": steps,
        "pods_now": {step: len(pods) for step, pods in step_pods(player, run).items()},
        "complaints": _wrong_ends(settings, way, state, steps),
    }


def _take_away(player: Player, run: str, way: str) -> None:
    faults = Faults(player.cluster, player.kfp.kube)

    def all_run() -> list[dict[str, Any]]:
        pods = [pod for same in step_pods(player, run).values() for pod in same]
        begun = list((player.stage.shared / "struck" / run).glob("*/001"))
        return pods if len(pods) == 3 == len(begun) and all(map(runs, pods)) else []

    for pod in until("three steps to run", all_run, timeout=420, every=1.0):
        getattr(faults, way)(pod["metadata"]["name"])


def _wrong_ends(settings: str, way: str, state: str, steps: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Where it is certain, every step ended as it must; elsewhere it ended well by a second start, or ended the run."""
    # Argo sees that a pod was deleted (Error), or how its container ended (Failed); it is a race, and the same end.
    found: dict[str, End] = {
        step: ("Failed" if row["phase"] == "Error" else row["phase"], row["starts"]) for step, row in steps.items()
    }
    wanted = ENDS.get((settings, way))
    either = {("Succeeded", 2), ("Failed", 1)}
    right = set(found.values()) <= either if wanted is None else found == wanted
    well = all(phase == "Succeeded" for phase, _ in found.values())
    if right and state == ("SUCCEEDED" if well else "FAILED"):
        return []
    return [f"{state}: {found}, not {wanted or either}: {[row['ends'] for row in steps.values()]}"]


def outcomes(player: Player, run: str, steps: list[str]) -> dict[str, Any]:
    """Attempts and end of each step as Argo tells them: a pod that was deleted is no longer there to be counted."""
    nodes = (player.kfp.workflow(run) or {}).get("status", {}).get("nodes", {})
    found = {}
    for step in steps:
        retry = [
            node
            for node in nodes.values()
            if node.get("type") == "Retry"
            and node.get("templateName", "").endswith(("container-impl", "retry-system-container-impl"))
            and _belongs(node, nodes, step)
        ]
        pods = [
            node
            for node in nodes.values()
            if node.get("type") == "Pod"
            and _belongs(node, nodes, step)
            and "driver" not in node.get("templateName", "")
        ]
        found[step] = {
            "attempts": len(pods),
            "ends": [f"{node.get('phase')}: {node.get('message', '')}"[:120] for node in pods],
            "phase": (retry or pods or [{}])[-1].get("phase", "?"),
        }
    return found


def _belongs(node: Mapping[str, Any], nodes: Mapping[str, Any], step: str) -> bool:
    """Whether a node lies below the task of that name."""
    seen = node
    while True:
        if seen.get("displayName", "").split("(")[0] == step:
            return True
        parents = [each for each in nodes.values() if seen["id"] in each.get("children", ())]
        own = seen.get("boundaryID")
        above = nodes.get(own) if own else None
        if above is None or above["id"] == seen["id"]:
            above = parents[0] if parents else None
        if above is None:
            return False
        seen = above


def spend(player: Player, strikes: int) -> Result:
    """One step with three retries, struck again and again."""
    title = f"budget-{strikes}-of-3"
    file = compiled(player, title, "budget", "always")
    started = time.monotonic()
    run = player.kfp.run(file, {"strikes": strikes}, name=title)
    faults = Faults(player.cluster, player.kfp.kube)
    struck: dict[str, str] = {}

    def look() -> bool:
        for pod in step_pods(player, run).get("s", ()):
            # Argo makes a pod that is gone before Argo has seen it again, under its name, and counts no attempt.
            name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
            is_new = uid not in struck.values() and not pod["metadata"].get("deletionTimestamp")
            if is_new and runs(pod) and (name in struck or len(struck) < strikes):
                time.sleep(2)
                faults.evict(name) if len(struck) % 2 else faults.delete(name)
                struck[name] = uid
        return player.kfp.ask("states", runs=[run])[run] in ENDED

    until("the run to end", look, timeout=600, every=1.0)
    state = player.kfp.ask("states", runs=[run])[run]
    found = outcomes(player, run, ["s"])["s"]
    wanted = "SUCCEEDED" if strikes <= 3 else "FAILED"
    complaints = (
        [] if (state, found["attempts"]) == (wanted, 4) else [f"{state} after {found}, not {wanted} after 4 pods"]
    )
    return {
        "name": title, "run": run, "state": state, "seconds": round(time.monotonic() - started),
        "interruptions": len(struck), "steps": {"s": found}, "complaints": complaints,
    }  # fmt: skip


def cache(player: Player) -> Result:
    """The same file twice; which steps of the second run had no pod."""
    name = "cached-twice"
    file = compiled(player, name)
    started = time.monotonic()
    counts = []
    for _ in range(2):
        run = player.kfp.run(file, name=name)
        state = player.kfp.wait([run], 600)[run]
        counts.append({step: len(pods) for step, pods in step_pods(player, run).items()})
    steps = ("with-output", "without-output", "reader", "uncached")
    second = {step: counts[1].get(step, 0) for step in steps}
    wanted = {"with-output": 0, "without-output": 0, "reader": 0, "uncached": 1}
    complaints = (
        [] if second == wanted and state == "SUCCEEDED" else [f"second run {state}, pods {second}, not {wanted}"]
    )
    return {
        "name": name, "run": run, "state": state, "seconds": round(time.monotonic() - started),
        "first": counts[0], "second": second, "cached": sum(not count for count in second.values()),
        "complaints": complaints,
    }  # fmt: skip


def terminate(player: Player) -> Result:
    """A run that somebody ends; then the run itself is deleted."""
    name = "terminated"
    file = compiled(player, name, "sleeper")
    started = time.monotonic()
    run = player.kfp.run(file, name=name)
    until("the step to run", lambda: any(map(runs, step_pods(player, run).get("s", ()))), timeout=300, every=1.0)
    player.kfp.ask("terminate", run=run)
    state = player.kfp.wait([run], 300)[run]
    until("its pods to end", lambda: not any(runs(pod) for pod in player.kfp.pods(run)), timeout=120, every=1.0)
    pods = {step: [pod["status"]["phase"] for pod in same] for step, same in step_pods(player, run).items()}
    # KFP ends the workflow by a deadline of zero, and calls what comes of it failed. Exit steps do not run.
    complaints = [] if (state, list(pods)) == ("FAILED", ["s"]) else [f"a terminated run is {state}, with pods {pods}"]
    player.kfp.ask("delete", run=run)
    try:
        player.kfp.get(run)
        complaints.append("a deleted run is still there")
    except KfpError as error:
        gone = str(error)[:120]
    else:
        gone = ""
    left = player.kfp.workflow(run)
    return {
        "name": name, "run": run, "state": state, "seconds": round(time.monotonic() - started), "pods_at_end": pods,
        "after_delete": gone, "workflow_left": left is not None, "complaints": complaints,
    }  # fmt: skip


def delete_running(player: Player) -> Result:
    """A run that is deleted while it runs: what becomes of its pods."""
    name = "deleted"
    file = compiled(player, name, "sleeper")
    started = time.monotonic()
    run = player.kfp.run(file, name=name)
    until("the step to run", lambda: any(map(runs, step_pods(player, run).get("s", ()))), timeout=300, every=1.0)
    player.kfp.ask("delete", run=run)
    until("its pods to end", lambda: not any(runs(pod) for pod in player.kfp.pods(run)), timeout=180, every=1.0)
    left, steps = player.kfp.workflow(run) is not None, sorted(step_pods(player, run))
    # The workflow goes with the run, and the pods with the workflow: no exit step starts.
    complaints = [f"of a deleted run there is still {steps}, workflow {left}"] if left or "e" in steps else []
    return {
        "name": name, "run": run, "state": "DELETED", "seconds": round(time.monotonic() - started),
        "pods_ended": True, "workflow_left": left, "complaints": complaints,
    }  # fmt: skip


SCHEDULED: dict[str, Any] = {
    "schedule": "* * * * *",
    "schedule.suspended": {"cron": "* * * * *", "suspended": True},
    "schedule.start": {"cron": "0 3 * * *", "start": "2026-01-31"},
    "schedule.catch_up": {"cron": "0 3 1 * *", "start": "2026-01-31", "catch_up": True},
}
"""Those with a start are late by months: one run for the last time that was missed, or one for each."""


def schedules(player: Player) -> Iterator[Result]:
    """The header's own lines, pasted; the runs that KFP's clock then started."""
    made: dict[str, tuple[str, dict[str, Any]]] = {}
    started = time.monotonic()
    for construct, schedule in SCHEDULED.items():
        name = "live-" + construct.replace(".", "-").replace("_", "-")
        file = compiled(player, name, "forced-one", schedule=schedule)
        text = file.read_text()
        lines = [each[4:] for each in text.splitlines() if re.match(r"#   (experiment|client)\b", each)]
        named = [each.replace(f'"{name}.yaml"', f'"{file.name}"') for each in lines]
        made[construct] = (name, player.kfp.ask("paste", lines=named, folder=str(file.parent)))

    def of(construct: str) -> list[str]:
        name, job = made[construct]
        found: list[str] = player.kfp.ask("runs_of", recurring=job["recurring_run_id"], experiment=name)
        return found

    until(
        "the clock to start runs",
        lambda: all(of(each) for each in made if each != "schedule.suspended"),
        timeout=240,
        every=5.0,
    )
    time.sleep(20)
    counts = {construct: of(construct) for construct in made}
    for _, job in made.values():
        player.kfp.ask("end_recurring", recurring=job["recurring_run_id"])
    states = player.kfp.wait([run for found in counts.values() for run in found], 600)
    for construct, found in counts.items():
        bad = [run for run in found if states[run] != "SUCCEEDED"]
        right = not found if construct == "schedule.suspended" else bool(found) and not bad
        if construct == "schedule.start":
            right = right and len(found) == 1
        if construct == "schedule.catch_up":
            right = right and len(found) > 1
        yield {
            "name": made[construct][0], "constructs": [construct], "state": "SUCCEEDED" if not bad else "FAILED",
            "seconds": round(time.monotonic() - started), "runs": len(found),
            "complaints": [] if right else [f"{len(found)} runs, {len(bad)} of them not SUCCEEDED"],
        }  # fmt: skip


def notify(player: Player) -> Result:
    """A run that fails, and a server in the cluster's network that is told so."""
    name, started = "notified", time.monotonic()
    received = player.folder / f"received-{uuid.uuid4().hex[:6]}"
    words = [*player.cluster.enter, sys.executable, "-m", "tests.receiver", ADDRESS, str(received)]
    server = subprocess.Popen(words, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})
    try:
        until("the server", lambda: received.exists() and received.read_text(), timeout=60)
        port = received.read_text().splitlines()[0]
        hook = {"url": f"http://{ADDRESS}:{port}/hook", "headers": {"Authorization": {"secret": "alerts", "key": "k"}}}
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "alerts"}, "stringData": {"k": "Bearer x"}}
        player.kfp.kube.apply(secret)
        file = compiled(player, name, "no-retry", notify=[{"webhook": hook, "on": ["failure", "success"]}])
        run = player.kfp.run(file, name=name)
        state = player.kfp.wait([run], 420)[run]
        got = [json.loads(line) for line in received.read_text().splitlines()[1:]]
    finally:
        server.kill()
        server.wait()
    told = [
        (each["headers"].get("authorization"), each["body"].get("pipeline"), each["body"].get("status")) for each in got
    ]
    right = told == [("Bearer x", name, "failure")] and state == "FAILED"
    return {
        "name": name, "constructs": ["notify.webhook"], "run": run, "state": state,
        "seconds": round(time.monotonic() - started), "told": told,
        "complaints": [] if right else [f"{state}, and the server was told {told}"],
    }  # fmt: skip
