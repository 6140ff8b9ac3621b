"""A standalone DAG on an older Airflow: `python -m tests.targets.airflow.older PYTHON 2.11`.

PYTHON has that Airflow and its Kubernetes provider, and no gpuflow. The file is compiled here, loaded there, and run
there to its end against a stand-in for the API server; what its pods were asked to do is compared.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from gpuflow import compile as compiled
from gpuflow import load

from .stand_in import GOOD, StandIn

CASE = Path(__file__).parent / "cases" / "older.yaml"
DAY = "2026-04-15T02:15:00+00:00"


def main(python: str, version: str) -> int:
    with tempfile.TemporaryDirectory() as name, StandIn() as server:
        folder = Path(name)
        (folder / "dags").mkdir()
        made = compiled(load(CASE), target="airflow", namespace="ml", standalone=True, airflow=version)
        (folder / "dags" / "older.py").write_text(made.text)
        environment = _environment(folder, server)
        airflow = [python, "-m", "airflow"]
        subprocess.run([*airflow, "db", "migrate"], env=environment, check=True, stdout=subprocess.DEVNULL)
        errors = subprocess.run(
            [*airflow, "dags", "list-import-errors", "-o", "json"], env=environment, text=True, capture_output=True
        )
        print("import errors:", errors.stdout.strip().splitlines()[-1:] or errors.stderr[-500:], flush=True)
        server.tell(*[GOOD] * 10)
        done = subprocess.run([*airflow, "dags", "test", "older", DAY], env=environment, text=True, capture_output=True)
        said = done.stdout + done.stderr
        commands = [pod["spec"]["containers"][0]["command"] for pod in server.made]
        print(json.dumps(commands, indent=1))
        fine = done.returncode == 0 and _as_asked(commands)
        print(f"Airflow {version}: {'loaded, ran, as asked' if fine else 'NOT as asked'} (exit {done.returncode})")
        if not fine:
            print(said[-20000:])
        return 0 if fine else 1


def _environment(folder: Path, server: StandIn) -> dict[str, str]:
    extra = {"kube_config_path": str(server.kubeconfig(folder)), "in_cluster": False}
    inherited = {key: os.environ[key] for key in ("PATH", "HOME", "LANG") if key in os.environ}
    return {
        **inherited,
        "AIRFLOW_HOME": str(folder),
        "AIRFLOW__CORE__DAGS_FOLDER": str(folder / "dags"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT": "900",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{folder}/airflow.db",
        "AIRFLOW__GPUFLOW__DEPLOYMENT": "tests",
        "AIRFLOW_CONN_KUBERNETES_DEFAULT": json.dumps({"conn_type": "kubernetes", "extra": extra}),
    }


def _as_asked(commands: list[list[str]]) -> bool:
    by_step = {command[0]: command for command in commands}
    return (
        len(commands) == 5
        and by_step["load"][2] == "2026-04-15"
        and re.fullmatch("r[0-9a-f]{15}", by_step["load"][4]) is not None
        and by_step["train"][1:] == ["--lr=0.1", "{{ kept }}"]
        and sorted(command[1] for command in commands if command[0] == "evaluate") == ["gsm8k", "mmlu"]
    )


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
