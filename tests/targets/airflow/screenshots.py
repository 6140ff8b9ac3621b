"""The pages of tasks that wait, in a real Airflow and a real browser: `… -m tests.targets.airflow.screenshots DIR`.

Needs Chromium. Airflow's API server, scheduler and triggerer run here; the Kubernetes API server is the stand-in, which
has no room for one pod and leaves another in its queue. Prints what each page must show and what it shows; ends with 1
when something is missing.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from .home import Home
from .services import Services
from .stand_in import StandIn, gated, quota_words

PIPELINE = """\
apiVersion: gpuflow/v1
kind: Pipeline
name: nightly
description: Train a model every night
labels: {team: nlp}
defaults: {image: "registry.example.com/nlp/train:1.4", cpu: 4, memory: 32Gi, env: {HF_HOME: /cache}}
steps:
  evaluate:
    description: Waits in its **queue**
    command: [python, evaluate.py, --day, {run: date}]
    gpu: a100-80gb
    queue: research
  train:
    description: Waits for *quota*
    command: [python, train.py, --lr, "1e-5", "{{ not a template }}"]
    env: {DB_PASSWORD: {secret: db, key: password}}
    gpu: a100-80gb x 2
    queue: research
    retry: 3
silence: [GF341]
"""
SITE = """\
apiVersion: gpuflow/v1
kind: Site
extends: nvidia
name: here
namespace: nlp
engines:
  airflow:
    links:
      Pod: "https://k8s.example.com/#/pod/{namespace}/{pod}"
      Queue: "https://kueue.example.com/local-queues/{namespace}/{queue}"
      Grafana: "https://grafana.example.com/d/pods?var-namespace={namespace}&var-pod={pod}&from={start}"
"""
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--hide-scrollbars", "--lang=en-US",
)  # fmt: skip


class Browser:
    """Chromium, with the cookie that Airflow's login gives."""

    def __init__(self, folder: Path, url: str) -> None:
        self.profile, self.url = folder / "browser", url
        self._run(f"{url}/auth/token/login", "--dump-dom")

    def page(self, path: str, picture: Path) -> str:
        """The picture of a page, once its program has loaded everything; and its text."""
        address = f"{self.url}{path}"
        self._run(address, f"--screenshot={picture}", "--window-size=1280,760")
        return re.sub(r"<[^>]+>", " ", self._run(address, "--dump-dom", "--window-size=1280,760"))

    def _run(self, address: str, *flags: str) -> str:
        program = shutil.which("chromium") or shutil.which("google-chrome") or "chromium"
        words = [program, *FLAGS, f"--user-data-dir={self.profile}", "--virtual-time-budget=60000", *flags, address]
        return subprocess.run(words, capture_output=True, text=True, timeout=600, check=True).stdout


def main(out: Path) -> int:
    out.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="pages-"))
    with StandIn() as server:
        home = home_of(server, folder)
        with Services(home) as airflow:
            home.environment["AIRFLOW__GPUFLOW__NOTES_CONNECTION"] = "airflow_api"
            home.environment["AIRFLOW_CONN_AIRFLOW_API"] = airflow.url.replace("://", "://:none@")
            airflow.start("api-server")
            token = airflow._asked("GET", "/api/v2/version") and airflow._token
            home.environment["AIRFLOW_CONN_AIRFLOW_API"] = airflow.url.replace("://", f"://:{token}@")
            airflow.start("scheduler", "triggerer")
            airflow.ask("PATCH", "/dags/nightly", {"is_paused": False})
            run = airflow.ask("POST", "/dags/nightly/dagRuns", {"logical_date": "2026-11-14T02:00:00Z"})["dag_run_id"]
            waiting(airflow, run)
            return look(Browser(folder, airflow.url), airflow, run, out)


def home_of(server: StandIn, folder: Path) -> Home:
    connection = {"kube_config_path": str(server.kubeconfig(folder)), "in_cluster": False}
    home = Home(folder, Path(sys.executable).parent, connection)
    home.migrate()
    (folder / "nightly.yaml").write_text(PIPELINE)
    (folder / "site.yaml").write_text(SITE)
    words = ["compile", "nightly.yaml", "--site", "site.yaml", "--target", "airflow", "-o", f"{home.dags}/"]
    program = [home.python, "-m", "gpuflow.cli.main", *words]
    subprocess.run(program, env=home.environment, cwd=folder, check=True)
    server.tell([gated()] * 10_000)
    only_one(server)
    return home


def only_one(server: StandIn) -> None:
    """The quota has room for the pod with one GPU, and for none with two."""
    made = server._post

    def post(name: None, query: dict[str, str], body: dict[str, Any]) -> tuple[int, Any]:
        limits = body["spec"]["containers"][0]["resources"]["limits"]
        if limits.get("nvidia.com/gpu") == "2":
            words = quota_words("2", "7", "8")
            return 403, {"kind": "Status", "code": 403, "reason": "Forbidden", "message": words}
        return made(name, query, body)

    server._post = post  # type: ignore[method-assign]  # for this one


def waiting(airflow: Services, run: str) -> None:
    """Until both tasks wait in the triggerer and have said why."""

    def noted() -> bool:
        found = airflow.ask("GET", f"/dags/nightly/dagRuns/{run}/taskInstances")["task_instances"]
        states = {task["task_id"]: (task["state"], task["note"]) for task in found}
        print(json.dumps(states), flush=True)
        return all(state == "deferred" and note for state, note in states.values())

    airflow.until(noted, "both tasks to wait and to say why")
    time.sleep(5)


def look(browser: Browser, airflow: Services, run: str, out: Path) -> int:
    base = f"/dags/nightly/runs/{run}/tasks"
    pages = {
        "log": (f"{base}/train", ["waiting for room", "exceeded quota", "gpuflow: waiting"]),
        "rendered": (f"{base}/evaluate/rendered_templates", ["container_resources", "cmds", "evaluate.py", "image"]),
        "details": (f"{base}/evaluate/details", ["Pod", "Queue", "Grafana", "waiting in queue research"]),
    }
    for task in ("train", "evaluate"):
        links = airflow.ask("GET", f"/dags/nightly/dagRuns/{run}/taskInstances/{task}/links")["extra_links"]
        status = airflow.ask("GET", f"/dags/nightly/dagRuns/{run}/taskInstances/{task}/xcomEntries/gpuflow_status")
        note = airflow.ask("GET", f"/dags/nightly/dagRuns/{run}/taskInstances/{task}")["note"]
        print(task, json.dumps({"links": links, "status": status["value"], "note": note}, indent=1), flush=True)
    wanting = 0
    for name, (path, words) in pages.items():
        text = browser.page(path, out / f"airflow-{name}.png")
        missing = [word for word in words if word not in text]
        wanting += len(missing)
        print(f"{name}: {'all there' if not missing else f'missing {missing}'}", flush=True)
    return 1 if wanting else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
