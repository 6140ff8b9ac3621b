"""The pages of tasks that wait, in a real Airflow and a real browser: `… -m tests.targets.airflow.screenshots DIR`.

Needs Chromium. Airflow's API server, scheduler and triggerer run here; the Kubernetes API server is the stand-in, which
has no room for one pod and leaves another in its queue. Prints what each page must show and what it shows; ends with 1
when something is missing.
"""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import aiohttp  # type: ignore[import-not-found]  # comes with Airflow's Kubernetes provider

from ...cluster.waiting import until
from .home import Home
from .services import LONGEST, Services
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
    """Chromium, told what to do by its own protocol: a page of a running task asks for news without end, so that no
    flag of the command line says when it is complete."""

    def __init__(self, folder: Path) -> None:
        profile = folder / "browser"
        program = shutil.which("chromium") or shutil.which("google-chrome") or "chromium"
        words = [program, *FLAGS, f"--user-data-dir={profile}", "--remote-debugging-port=0"]
        with (folder / "browser.out").open("wb") as out:
            self._process = subprocess.Popen(words, stdout=out, stderr=out)
        told = profile / "DevToolsActivePort"
        self._port = until("the browser", lambda: told.exists() and told.read_text().split("\n")[0], timeout=LONGEST)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def page(
        self, address: str, words: Sequence[str] = (), picture: Path | None = None, height: int = 760
    ) -> list[str]:
        """Open a page, wait until it shows these words, take its picture; the words that never came."""
        return asyncio.run(self._page(address, words, picture, height))

    async def _page(self, address: str, words: Sequence[str], picture: Path | None, height: int) -> list[str]:
        async with aiohttp.ClientSession() as session:
            async with session.put(f"http://127.0.0.1:{self._port}/json/new?about:blank") as answer:
                tab = await answer.json()
            async with session.ws_connect(tab["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                size = {"width": 1280, "height": height, "deviceScaleFactor": 1, "mobile": False}
                await _told(socket, "Emulation.setDeviceMetricsOverride", **size)
                await _told(socket, "Page.navigate", url=address)
                missing = await _awaited(socket, words)
                if picture is not None:
                    shot = await _told(socket, "Page.captureScreenshot", format="png")
                    picture.write_bytes(base64.b64decode(shot["data"]))
            async with session.get(f"http://127.0.0.1:{self._port}/json/close/{tab['id']}"):
                return missing


async def _awaited(socket: Any, words: Sequence[str]) -> list[str]:
    """Those of the words that the page does not show, after as long as is reasonable; none once all are there."""
    end = time.monotonic() + LONGEST
    while True:
        asked = {"expression": "document.body ? document.body.innerText : ''", "returnByValue": True}
        text = (await _told(socket, "Runtime.evaluate", **asked))["result"].get("value", "")
        missing = [word for word in words if word not in text]
        if not missing or time.monotonic() > end:
            await asyncio.sleep(2)  # what is drawn comes a moment after what is known
            return missing
        await asyncio.sleep(1)


async def _told(socket: Any, method: str, **params: Any) -> dict[str, Any]:
    """One request of the protocol and its answer; what happens in between is left out."""
    await socket.send_json({"id": 1, "method": method, "params": params})
    while True:
        said = await socket.receive_json(timeout=LONGEST)
        if said.get("id") == 1:
            return dict(said.get("result", {}))


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
            show(airflow, run)
            with Browser(folder) as browser:
                return look(browser, airflow.url, run, out)


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


def show(airflow: Services, run: str) -> None:
    """What Airflow's API says of both tasks: links, status and note."""
    for task in ("train", "evaluate"):
        links = airflow.ask("GET", f"/dags/nightly/dagRuns/{run}/taskInstances/{task}/links")["extra_links"]
        status = airflow.ask("GET", f"/dags/nightly/dagRuns/{run}/taskInstances/{task}/xcomEntries/gpuflow_status")
        note = airflow.ask("GET", f"/dags/nightly/dagRuns/{run}/taskInstances/{task}")["note"]
        print(task, json.dumps({"links": links, "status": status["value"], "note": note}, indent=1), flush=True)


def look(browser: Browser, url: str, run: str, out: Path) -> int:
    base = f"{url}/dags/nightly/runs/{run}/tasks"
    pages = {
        "log": (f"{base}/train", 760, ["waiting for room", "exceeded quota", "gpuflow: waiting"]),
        "rendered": (f"{base}/evaluate/rendered_templates", 1480, ["container_resources", "cmds", "evaluate.py"]),
        "details": (f"{base}/evaluate/details", 760, ["Pod", "Queue", "Grafana", "waiting in queue research"]),
    }
    browser.page(f"{url}/auth/token/login")
    wanting = 0
    for name, (address, height, words) in pages.items():
        # The name of a tab in English is there when the translations are.
        missing = browser.page(address, [*words, "Rendered Templates"], out / f"airflow-{name}.png", height)
        wanting += len(missing)
        print(f"{name}: {'all there' if not missing else f'missing {missing}'}", flush=True)
    return 1 if wanting else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
