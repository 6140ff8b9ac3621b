"""Processor seconds to parse and store a DAG: compiled by gpuflow against hand-written: `python bench/airflow.py`.

Both DAGs have the same steps: a GPU, node affinity, a toleration, labels, three variables, /dev/shm, a security context
and retries. The hand-written one uses KubernetesPodOperator's keyword arguments in a loop, the way a person writes a
thousand steps; the compiled one spells every step out. `parse` reads and runs the file, `store` makes what Airflow
keeps in its database. Importing Airflow itself, the same for both, is left out. The two take turns, and of each number
the median counts.

`python bench/airflow.py --files 200` measures Airflow's own DAG processor instead: one pass over so many files of ten
steps each, in a database of its own. Processor seconds are those of the processor and of all the processes that it
starts, imports included; memory is that of the largest of them. `--turns` says how often; the median counts.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any

from measuring import arguments

# This file has the name of the package it measures, and its folder comes first where Python looks.
sys.path[:] = [path for path in sys.path if Path(path or ".").resolve() != Path(__file__).resolve().parent]

AIM = 0.5
STEPS, FEW_STEPS = (100, 1000), (1, 2)
STEPS_PER_FILE = 10
HAND_WRITTEN = """
from datetime import timedelta

from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator
from airflow.sdk import DAG
from kubernetes.client import models as k8s

with DAG(dag_id="steps", schedule=None) as dag:
    before = None
    for number in range({steps}):
        step = KubernetesPodOperator(
            task_id=f"s{{number}}",
            name=f"s{{number}}",
            namespace="nlp",
            image="registry.example.com/nlp/train:1.4",
            cmds=["python", "train.py"],
            arguments=["--part", str(number)],
            env_vars=[
                k8s.V1EnvVar(name="A", value="1"),
                k8s.V1EnvVar(name="B", value="2"),
                k8s.V1EnvVar(name="C", value="3"),
            ],
            labels={{"team": "nlp", "kueue.x-k8s.io/queue-name": "research"}},
            affinity=k8s.V1Affinity(
                node_affinity=k8s.V1NodeAffinity(
                    required_during_scheduling_ignored_during_execution=k8s.V1NodeSelector(
                        node_selector_terms=[
                            k8s.V1NodeSelectorTerm(
                                match_expressions=[
                                    k8s.V1NodeSelectorRequirement(
                                        key="nvidia.com/gpu.product",
                                        operator="In",
                                        values=["NVIDIA-A100-SXM4-80GB", "NVIDIA-A100-80GB-PCIe"],
                                    )
                                ]
                            )
                        ]
                    )
                )
            ),
            tolerations=[k8s.V1Toleration(key="nvidia.com/gpu", operator="Exists", effect="NoSchedule")],
            container_resources=k8s.V1ResourceRequirements(
                requests={{"cpu": "4", "memory": "16Gi", "nvidia.com/gpu": "1"}},
                limits={{"cpu": "4", "memory": "16Gi", "nvidia.com/gpu": "1"}},
            ),
            security_context=k8s.V1PodSecurityContext(run_as_non_root=True, run_as_user=1000),
            container_security_context=k8s.V1SecurityContext(
                allow_privilege_escalation=False, capabilities=k8s.V1Capabilities(drop=["ALL"])
            ),
            volumes=[
                k8s.V1Volume(name="shm", empty_dir=k8s.V1EmptyDirVolumeSource(medium="Memory", size_limit="8Gi"))
            ],
            volume_mounts=[k8s.V1VolumeMount(name="shm", mount_path="/dev/shm")],
            retries=2,
            retry_delay=timedelta(seconds=30),
            schedule_timeout_seconds=86400,
        )
        if before is not None:
            before >> step
        before = step
"""


def pipeline_text(steps: int) -> str:
    """The same steps as a pipeline."""
    lines = [
        "apiVersion: gpuflow/v1",
        "kind: Pipeline",
        "name: steps",
        "defaults:",
        "  image: registry.example.com/nlp/train:1.4",
        "  queue: research",
        "  labels: {team: nlp}",
        "  cpu: 4",
        "  memory: 16Gi",
        "  shm: 8Gi",
        "  env: {A: 1, B: 2, C: 3}",
        "  retry: {failures: 2, backoff: 30s}",
        "steps:",
    ]
    for number in range(steps):
        needs = f"needs: s{number - 1}, " if number else ""
        lines.append(f"  s{number}: {{{needs}gpu: a100-80gb, command: [python, train.py, --part, {number}]}}")
    return "\n".join(lines) + "\n"


def compiled(steps: int) -> str:
    from gpuflow.site import Site
    from gpuflow.spec.loading import loads
    from gpuflow.targets.airflow import target
    from gpuflow.targets.target import Request

    return target.compile(Request(loads(pipeline_text(steps)), Site.load("nvidia"), "nlp", "steps.yaml"))[0].text


def parsed(file: Path) -> Any:
    """The DAG in a file, without cached byte code."""
    names: dict[str, Any] = {"__file__": str(file), "__name__": "dag_file"}
    exec(compile(file.read_text(), str(file), "exec"), names)
    return names["dag"]


def measured(file: Path) -> tuple[float, float, int]:
    """Seconds to parse, seconds to store, and bytes stored."""
    from airflow.serialization.serialized_objects import DagSerialization

    start = process_time()
    dag = parsed(file)
    middle = process_time()
    stored = DagSerialization.to_dict(dag)
    end = process_time()
    return middle - start, end - middle, len(json.dumps(stored))


def in_turns(files: dict[str, Path], turns: int) -> dict[str, tuple[float, float, int]]:
    """The medians of each file, taken in turns so that a busy machine hits all of them."""
    found: dict[str, list[tuple[float, float, int]]] = {name: [] for name in files}
    for _ in range(turns):
        for name, file in files.items():
            found[name].append(measured(file))
    return {
        name: (median(one[0] for one in all_), median(one[1] for one in all_), all_[0][2])
        for name, all_ in found.items()
    }


MAKERS: dict[str, Callable[[int], str]] = {
    "hand-written": lambda steps: HAND_WRITTEN.format(steps=steps),
    "compiled": compiled,
}


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--files", type=int, default=0, help="so many files in one DAG processor")
    parser.add_argument("--turns", type=int, help="how often each is measured: 5 times, with --files 3 times")
    args = parser.parse_args()
    if args.files:
        return in_a_processor(args.files, args.turns or 3)
    return one_dag(FEW_STEPS, args.turns or 1) if args.smoke else one_dag(STEPS, args.turns or 5)


def one_dag(sizes: tuple[int, ...], turns: int) -> int:
    """One DAG, with more and more steps."""
    print(f"{'steps':>6} {'dag':<13}{'parse':>8}{'store':>8}{'sum':>8}{'stored KiB':>12}{'of hand-written':>17}")
    worst = 0.0
    with TemporaryDirectory() as folder:
        for steps in sizes:
            files = {name: Path(folder) / f"{name}-{steps}.py" for name in MAKERS}
            for name, file in files.items():
                file.write_text(MAKERS[name](steps))
            rows = in_turns(files, turns)
            whole = sum(rows["hand-written"][:2])
            for name, (parse, store, size) in rows.items():
                part = (parse + store) / whole
                worst = max(worst, part if name == "compiled" else 0.0)
                times = f"{parse:>8.2f}{store:>8.2f}{parse + store:>8.2f}"
                print(f"{steps:>6} {name:<13}{times}{size / 1024:>12.0f}{part:>17.2f}")
    print(f"aim: at most {AIM} of the hand-written one; worst here {worst:.2f}")
    return 0


def in_a_processor(count: int, turns: int) -> int:
    """Many DAG files in one DAG processor."""
    print(f"{'files':>6} {'dags':<13}{'seconds':>9}{'of hand-written':>17}{'MiB':>7}{'of hand-written':>17}")
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in MAKERS}
    for _ in range(turns):
        for name, maker in MAKERS.items():
            with TemporaryDirectory() as folder:
                found[name].append(processed(Path(folder), maker(STEPS_PER_FILE), count))
    rows = {name: (median(each[0] for each in all_), median(each[1] for each in all_)) for name, all_ in found.items()}
    whole = rows["hand-written"]
    for name, (seconds, memory) in rows.items():
        times = f"{seconds:>9.1f}{seconds / whole[0]:>17.2f}"
        print(f"{count:>6} {name:<13}{times}{memory:>7.0f}{memory / whole[1]:>17.2f}")
    return 0


def processed(folder: Path, text: str, count: int) -> tuple[float, float]:
    """Processor seconds and MiB of one pass over so many copies of a file, each with a DAG of its own."""
    dags = folder / "dags"
    dags.mkdir()
    for number in range(count):
        (dags / f"dag_{number}.py").write_text(text.replace('dag_id="steps"', f'dag_id="steps_{number}"'))
    environment = {
        **os.environ,
        "AIRFLOW_HOME": str(folder),
        "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT": "900",
        "AIRFLOW__DAG_PROCESSOR__DAG_FILE_PROCESSOR_TIMEOUT": "900",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{folder}/airflow.db?timeout=900",
        "PYTHONPATH": str(Path(__file__).resolve().parents[1]),
    }
    airflow = str(Path(sys.executable).parent / "airflow")
    subprocess.run([airflow, "db", "migrate"], env=environment, check=True, capture_output=True)
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen(
            [airflow, "dag-processor", "--num-runs", "1"], env=environment, stdout=log, stderr=log
        )
        _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    stored = subprocess.run(
        [airflow, "dags", "list", "--output", "json"], env=environment, check=True, capture_output=True, text=True
    ).stdout
    seen = stored.count('"steps_')
    if process.returncode or seen < count:
        tail = (folder / "log").read_text(errors="replace")[-2000:]
        raise SystemExit(f"the DAG processor ended with {process.returncode} and stored {seen} of {count} DAGs\n{tail}")
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


if __name__ == "__main__":
    sys.exit(main())
