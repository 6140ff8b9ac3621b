"""The scheduled time of a CronWorkflow reaches the program of a step, also when the run starts late; a schedule that
starts later starts nothing yet."""

from __future__ import annotations

import json
import os
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
import yaml

from .cluster import Cluster
from .fixtures import lacking
from .kube import Kube
from .waiting import until

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".venvs" / "argo" / "bin" / "python"
BERLIN = ZoneInfo("Europe/Berlin")
MINUTE = timedelta(minutes=1)
PIPELINE = """
apiVersion: gpuflow/v1
kind: Pipeline
name: dates
schedule: {cron: "* * * * *", timezone: Europe/Berlin, start: 2020-01-01, concurrency: allow}
steps:
  say:
    image: %s
    image_pull_policy: IfNotPresent
    cpu: {request: 20m}
    memory: {request: 16Mi}
    command: [sh, -c, 'echo "$FROM|$TO|$DAY|$NAME|$ATTEMPT"; test "$ATTEMPT" = 2']
    retry: 2
    env:
      FROM: {run: interval_start}
      TO: {run: logical_date}
      DAY: {run: date, format: "%%d %%b %%Y, {{%%H:%%M}}", timezone: UTC}
      NAME: {run: name}
      ATTEMPT: {run: attempt}
"""


def compiled(path: Path, namespace: str) -> dict[str, Any]:
    if not PYTHON.exists():
        lacking("compiling for argo needs .venvs/argo with gpuflow[argo]")
    words = ["-m", "gpuflow.cli.main", "compile", str(path), "--target", "argo", "--namespace", namespace]
    done = subprocess.run(
        [PYTHON, *words], env={**os.environ, "PYTHONPATH": str(ROOT)}, text=True, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = yaml.safe_load(done.stdout)
    return found


def said(kube: Kube, run: str) -> list[str]:
    """What the attempts of a run's only step print, once it has ended well."""
    done = kube.await_object("workflow", run, "ended", lambda item: bool(item.get("status", {}).get("finishedAt")), 180)
    assert done["status"]["phase"] == "Succeeded", done["status"]
    pods = kube.list("pod", f"workflows.argoproj.io/workflow={run}")
    logs = (kube("logs", item["metadata"]["name"], "--container=main") for item in pods)
    return sorted(line for log in logs for line in log.splitlines() if "|" in line)


def expected(run: str, scheduled: datetime, before: datetime) -> list[str]:
    day = scheduled.astimezone(UTC).strftime("%d %b %Y, {{%H:%M}}")
    first = "|".join((before.astimezone(BERLIN).isoformat(), scheduled.astimezone(BERLIN).isoformat(), day, run))
    return [f"{first}|1", f"{first}|2"]


def scheduled_runs(kube: Kube) -> dict[str, datetime]:
    """The runs that the schedule started, with their scheduled times."""
    found = kube.list("workflow", "workflows.argoproj.io/cron-workflow=dates")
    key = "workflows.argoproj.io/scheduled-time"
    return {
        item["metadata"]["name"]: datetime.fromisoformat(item["metadata"]["annotations"][key])
        for item in found
        if key in item["metadata"].get("annotations", {})
    }


def created(kube: Kube, run: str) -> datetime:
    found = kube.get("workflow", run)
    assert found is not None
    return datetime.fromisoformat(found["metadata"]["creationTimestamp"])


def test_the_scheduled_time_reaches_the_program_on_time_late_and_by_hand(
    private_cluster: Cluster, workflows: Kube, tmp_path: Path
) -> None:
    source = tmp_path / "dates.yaml"
    source.write_text(PIPELINE % private_cluster.image("busybox"))
    manifest = compiled(source, workflows.namespace)
    source.write_text(source.read_text().replace("name: dates", "name: later").replace("2020-01-01", "2999-01-01"))
    workflows.create(manifest, compiled(source, workflows.namespace))

    until("the schedule started a run", lambda: bool(scheduled_runs(workflows)), timeout=150)
    run, scheduled = next(iter(scheduled_runs(workflows).items()))
    assert said(workflows, run) == expected(run, scheduled, scheduled - MINUTE)

    private_cluster.stop("workflow-controller")
    known = scheduled_runs(workflows)
    missed = max(known.values()) + 2 * MINUTE
    until("a scheduled time has passed", lambda: datetime.now(UTC) > missed + timedelta(seconds=20), timeout=200)
    private_cluster.start("workflow-controller")
    until("the missed run started", lambda: len(scheduled_runs(workflows)) > len(known), timeout=60)
    late, scheduled = min(
        ((name, at) for name, at in scheduled_runs(workflows).items() if name not in known), key=lambda pair: pair[1]
    )
    workflows("patch", "cronworkflow", "dates", "--type=merge", "-p", json.dumps({"spec": {"suspend": True}}))
    assert created(workflows, late) - scheduled > timedelta(seconds=10)
    assert said(workflows, late) == expected(late, scheduled, scheduled - MINUTE)

    assert workflows.list("workflow", "workflows.argoproj.io/cron-workflow=later") == []

    by_hand = {"apiVersion": manifest["apiVersion"], "kind": "Workflow", "spec": manifest["spec"]["workflowSpec"]}
    at = {"workflows.argoproj.io/scheduled-time": "2026-03-29T03:00:00+02:00"}
    workflows.create(
        {**by_hand, "metadata": {"name": "by-hand"}}, {**by_hand, "metadata": {"name": "again", "annotations": at}}
    )
    made = created(workflows, "by-hand")
    whole = made.replace(second=0)
    assert said(workflows, "by-hand") == expected("by-hand", made, whole if whole < made else whole - MINUTE)
    assert said(workflows, "again") == expected(
        "again", datetime(2026, 3, 29, 1, tzinfo=UTC), datetime(2026, 3, 29, 0, 59, tzinfo=UTC)
    )
