"""Standalone DAG files on older Airflows: `python -m proofs airflow-older [2.10 …] [--python EXE]`.

For each version: an environment with that Airflow and without gpuflow, made under build/venvs-older/ from the
constraints beside this file (Python 3.11) unless `--python` names one. Every example of the documentation and every
golden case is compiled for it. There they are loaded and stored, and one is run to its end against a stand-in for the
API server; what its pods were asked to do is compared.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import Any

from gpuflow import GpuflowError, load
from gpuflow import compile as compiled
from gpuflow.targets.airflow.standalone import OLDER
from tests.targets.airflow.stand_in import GOOD, StandIn

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SOURCES = {
    path.relative_to(folder).with_suffix("").as_posix().replace("/", "_").replace("-", "_"): path
    for folder in (ROOT / "docs", ROOT / "tests" / "targets" / "airflow" / "cases")
    for path in sorted(folder.rglob("*.yaml"))
    if "\nkind: Pipeline\n" in path.read_text(encoding="utf-8")
}
"""Every example of the documentation and every golden case, by a name of its own."""
DAY = "2026-04-15T02:15:00+00:00"


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m proofs airflow-older")
    parser.add_argument("versions", nargs="*", choices=[[], *OLDER], metavar="|".join(OLDER))
    parser.add_argument("--python", help="a Python that has the Airflow; then one version")
    args = parser.parse_args(words)
    versions = args.versions or OLDER
    failed = [version for version in versions if not tried(args.python or prepared(version), version)]
    print(f"== not as asked: {', '.join(failed)}" if failed else f"== all as asked: {', '.join(versions)}")
    return 1 if failed else 0


def prepared(version: str) -> str:
    """The Python of an environment with this Airflow."""
    folder = ROOT / "build" / "venvs-older" / version
    python, constraints = folder / "bin" / "python", HERE / f"{version}.txt"
    if not (folder / ".ready").exists():
        print(f"== Airflow {version}: installing", flush=True)
        venv.create(folder, with_pip=True, clear=True)
        wanted = ["apache-airflow", "apache-airflow-providers-cncf-kubernetes"]
        install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-c", str(constraints)]
        subprocess.run([python, *install, *wanted], check=True)
        (folder / ".ready").touch()
    return str(python)


def tried(python: str, version: str) -> bool:
    with tempfile.TemporaryDirectory() as name, StandIn() as server:
        folder = Path(name)
        expected = written(folder / "dags", version)
        server.tell(*[GOOD] * 10)
        log = ROOT / "build" / f"airflow-{version}.log"
        log.parent.mkdir(exist_ok=True)
        with open(log, "w") as file:
            words = [python, str(HERE / "inside.py"), "older", DAY]
            subprocess.run(words, env=_environment(folder, server), stdout=file, stderr=file, check=False)
        lines = log.read_text(errors="replace").strip().splitlines()
        said: dict[str, Any] = json.loads(lines[-1]) if lines and lines[-1].startswith("{") else {}
        commands = [pod["spec"]["containers"][0]["command"] for pod in server.made]
    print(f"== Airflow {said.get('version', version)}: {json.dumps(said)}\n   pods: {json.dumps(commands)}", flush=True)
    wrong = [
        *([] if said else ["it did not get to its end"]),
        *([f"import errors: {said['errors']}"] if said.get("errors") else []),
        *([f"not loaded: {sorted(expected - said['dags'].keys())}"] if said and expected - said["dags"].keys() else []),
        *(["`airflow dags test` failed"] if said.get("ran") else []),
        *([] if _as_asked(commands) else ["the pods were not asked to do what the pipeline says"]),
    ]
    for each in wrong:
        print(f"   {each}", flush=True)
    if wrong:
        print(f"   its log is {log.relative_to(ROOT)}", flush=True)
    return not wrong


def written(folder: Path, version: str) -> set[str]:
    """The DAG files, each with a DAG of its own name; the names. What is refused is said, with the codes."""
    folder.mkdir()
    names = set()
    for name, source in SOURCES.items():
        try:
            made = compiled(load(source), target="airflow", namespace="ml", standalone=True, airflow=version)
        except GpuflowError as refused:
            print(f"   {name}: refused, {', '.join(sorted({each.code for each in refused.findings}))}")
            continue
        text, count = re.subn(r'dag_id="[^"]+"', f'dag_id="{name}"', made.text, count=1)
        assert count, name
        (folder / f"{name}.py").write_text(text)
        names.add(name)
    print(f"== Airflow {version}: {len(names)} of {len(SOURCES)} pipelines compiled", flush=True)
    return names


def _environment(folder: Path, server: StandIn) -> dict[str, str]:
    extra = {"kube_config_path": str(server.kubeconfig(folder)), "in_cluster": False}
    inherited = {key: os.environ[key] for key in ("PATH", "HOME", "LANG") if key in os.environ}
    return {
        **inherited,
        "AIRFLOW_HOME": str(folder),
        "AIRFLOW__CORE__DAGS_FOLDER": str(folder / "dags"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT": "900",
        "AIRFLOW__CORE__DEFAULT_TASK_RETRY_DELAY": "1",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{folder}/airflow.db",
        "AIRFLOW__GPUFLOW__DEPLOYMENT": "tests",
        "AIRFLOW_CONN_KUBERNETES_DEFAULT": json.dumps({"conn_type": "kubernetes", "extra": extra}),
    }


def _as_asked(commands: list[list[str]]) -> bool:
    by_step = {command[0]: command for command in commands}
    return (
        [command[0] for command in commands] == ["load", "train", "evaluate", "evaluate", "tidy"]
        and by_step["load"][2] == "2026-04-15"
        and re.fullmatch("r[0-9a-f]{15}", by_step["load"][4]) is not None
        and by_step["train"][1:] == ["--lr=0.1", "{{ kept }}"]
        and sorted(command[1] for command in commands if command[0] == "evaluate") == ["gsm8k", "mmlu"]
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
