"""Every proof: what it shows, what it needs, how long it takes, and the commands that run it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

GO, GO_AND_ROOT = "Go", "Go, root"
KFP = "Go, root, KFP's source (docs/proof-ground-cluster.md)"
NOT_MEASURED = "not measured"
HANGS = "-o faulthandler_timeout=600 -o faulthandler_exit_on_timeout=true"
LIVE = '-m "control_plane or cluster" -rs'


class Command(NamedTuple):
    """One command: the environment (.venvs/<name>) and the words after its Python. `{count}` stands for an option."""

    environment: str
    words: str
    variables: Mapping[str, str] = {}


class Stage(NamedTuple):
    """Commands that run side by side, so many at a time as `--workers` says."""

    commands: tuple[Command, ...]
    title: str = ""


@dataclass(frozen=True)
class Proof:
    """A proof without stages is the module of its name: `airflow-ending` is `proofs.airflow_ending`."""

    shows: str
    needs: str = "Python and make"
    takes: str = NOT_MEASURED
    environment: str = "core"
    uses: tuple[str, ...] = ()
    """Environments that it needs beside its own."""
    count: int | None = None
    """How many cases, unless `--count` says; None: there is nothing to count."""
    seed: int | None = 1
    """None: nothing in it is random, or the seed is fixed."""
    options: Mapping[str, str] = field(default_factory=dict)
    """More options and their defaults."""
    words: str = ""
    """What the module is told beside count and seed."""
    stages: tuple[Stage, ...] = ()
    to_the_end: bool = False
    """Whether the later stages run after one that failed."""
    page: str = ""
    """The lab book: what was run, and what was seen."""

    def environments(self) -> list[str]:
        named = [command.environment for stage in self.stages for command in stage.commands]
        return list(dict.fromkeys([*(named or [self.environment]), *self.uses]))

    def defaults(self) -> dict[str, str]:
        given = {"count": self.count, "seed": self.seed}
        return {**{name: str(value) for name, value in given.items() if value is not None}, **self.options}

    def commands(self, name: str) -> tuple[Stage, ...]:
        """The stages; of a proof without any, the module of its name with the options that it knows."""
        if self.stages:
            return self.stages
        counted = "".join(f" --{each} {{{each}}}" for each in self.defaults())
        return (_one(self.environment, f"-m proofs.{name.replace('-', '_')} {self.words}{counted}"),)


def _one(environment: str, words: str, title: str = "", **variables: str) -> Stage:
    return Stage((Command(environment, words, variables),), title)


def _tests(environment: str, words: str, title: str = "", **variables: str) -> Stage:
    return _one(environment, f"-m pytest {words}", title, **variables)


ASKED = {
    "admission": 20_000,
    "quantity": 50_000,
    "kueue": 5_000,
    "nodefit": 5_000,
    "claims": 5_000,
    "merge": 3_000,
    "dra-pod": 1_000,
    "gangs": 1_000,
    "topology": 1_000,
    "objects": 2_000,
    "argo": 2_000,
}
"""New random cases of each kind in one run of the oracles."""
ORACLES = (
    _tests("core", "tests/engines tests/differential tests/proofs -m go", "oracles: the engines' own code"),
    # Python and Go take turns, so kinds are asked side by side.
    Stage(
        (
            *(
                Command(
                    "argo" if kind == "argo" else "core",
                    f"-m tests.differential --kind {kind} --cases {cases} --seed 2026",
                )
                for kind, cases in ASKED.items()
            ),
            Command("core", "-m proofs.checker_dra --count 5000 --seed 2026"),
        ),
        "new random cases, both sides",
    ),
    _one("core", "-m proofs.checker --count 3000 --seed 2026 --workers {workers}", "whole runs in every order"),
    _tests(
        "argo",
        f"tests/targets/argo tests/gitops -m go -n {{workers}} --dist worksteal {HANGS}",
        "what is compiled for Argo, asked of Argo's own code",
    ),
)

LAUNCHERS = [
    f"tests/cluster/test_{name}.py"
    for name in (
        *("gang_definitions", "gang_launcher", "gang_operator", "gang_topology"),
        *("jobset", "pytorchjob_gangs", "pytorchjob_operator"),
    )
]
"""Gangs on a control plane; their controllers take long to build, so they are no part of `control-plane`."""
ON_ENGINES = [
    f"tests/cluster/test_{name}.py"
    for name in ("gangs", "argo_gangs", "airflow_gangs", "kubeflow_gangs", "gang_controllers", "mpi_gangs")
]

CLUSTER = (
    _tests(
        "core",
        "tests/cluster tests/targets/airflow/test_airflow_cluster.py "
        "tests/targets/airflow/test_airflow_cluster_faults.py "
        "tests/targets/argo/test_argo_cluster.py tests/targets/argo/test_argo_cluster_flow.py "
        "tests/targets/argo/test_argo_cluster_token.py tests/targets/argo/test_argo_cluster_alerts.py "
        "tests/gitops/test_argo_cluster.py tests/readers/argo/test_argo_cluster.py tests/proofs/test_retries_smoke.py "
        f"--ignore tests/cluster/test_kubeflow_retries.py {LIVE}",
    ),
    _tests(
        "kubeflow",
        "tests/targets/kubeflow/test_live.py tests/targets/kubeflow/test_carried.py "
        "tests/cluster/test_kubeflow_retries.py -m cluster -rs",
    ),
)

PROOFS: dict[str, Proof] = {
    # The suites that decide whether gpuflow's predictions are what the engines do.
    "oracles": Proof(
        "gpuflow's code against the engines' own Go code, on file and on new random cases",
        needs=GO,
        takes="16 minutes on two cores, builds included",
        seed=None,
        options={"workers": "2"},
        stages=ORACLES,
        page="docs/proof-ground-oracles.md",
    ),
    "control-plane": Proof(
        "tests on a private API server, controllers and scheduler with simulated nodes",
        needs=GO_AND_ROOT,
        takes="15 minutes on two cores, builds included",
        uses=("airflow",),
        seed=None,
        stages=(
            _tests(
                "core",
                "tests/cluster tests/proofs -m control_plane -o faulthandler_timeout=600 "
                + " ".join(f"--ignore {file}" for file in LAUNCHERS),
                "control plane: etcd, API server, controllers, scheduler",
            ),
        ),
        page="docs/proof-ground-cluster.md",
    ),
    "cluster": Proof(
        "every test that needs a cluster, on a private one or on yours (KUBECONFIG)",
        needs="Go and root, or a cluster",
        uses=("airflow", "argo", "demo"),
        seed=None,
        stages=CLUSTER,
        page="docs/proof-ground-cluster.md",
    ),
    # The checker.
    "checker": Proof(
        "verdicts on small random runs, against the engines' own code in every order",
        needs=GO,
        count=20_000,
        options={"workers": "2"},
        page="proofs/checker.md",
    ),
    "advice": Proof(
        "each line of the checker's advice, applied to its pipeline and judged again",
        needs=GO,
        count=2_000,
        options={"workers": "2"},
        stages=(_one("core", "-m proofs.checker --advice --count {count} --seed {seed} --workers {workers}"),),
        page="proofs/checker.md",
    ),
    "checker-dra": Proof(
        "random device claims, against the scheduler's own allocator",
        needs=GO,
        count=5_000,
        page="docs/design/dra.md",
    ),
    "whole-documents": Proof(
        "random whole documents on a private control plane with the real controllers, beside the checker's answers",
        needs=GO_AND_ROOT,
        count=2_000,
        page="proofs/whole-documents.md",
    ),
    "bounds": Proof(
        "checks that are made to take long: each ends within 20 CPU seconds and 1 GiB",
        count=1_000,
        page="docs/reference/admission-model.md",
    ),
    "readers": Proof(
        "other people's workflows on a real Argo controller, against what the reader says of them",
        needs=GO_AND_ROOT,
        count=100,
        page="proofs/readers.md",
    ),
    # The supervisor and its stores.
    "supervisor": Proof(
        "the supervisor's own code in every order, with every fault, crash and notice, up to --depth 2 decisions",
        takes="4 hours at most; --seconds says otherwise",
        words="--seconds 14400",
        page="docs/design/supervisor.md",
    ),
    "strict-documents": Proof(
        "documents with a misspelled field or a value of another type: a strict dry run, and gpuflow",
        needs=GO_AND_ROOT,
        takes="10 minutes",
        count=5_000,
        page="proofs/checker.md",
    ),
    "supervisor-kills": Proof(
        "a program under gpuflow-run, interrupted and killed at random moments",
        count=2_000,
        page="docs/design/supervisor.md",
    ),
    "links": Proof(
        "planted links and special files in stores, inputs and checkpoint directories",
        count=500,
        page="docs/design/supervisor.md",
    ),
    "silent-stores": Proof(
        "every call of every store to a server that takes it and does not answer, with and without a SIGTERM",
        takes="10 minutes, most of them waiting",
        environment="runtime",
        seed=None,
        page="docs/design/supervisor.md",
    ),
    "artifacts": Proof(
        "kills while artifacts are kept and fetched, --count each on a disk and two S3 servers",
        environment="runtime",
        count=300,
        page="proofs/artifacts.md",
    ),
    "artifacts-engines": Proof(
        "one pipeline that passes files on, on a real Argo, Airflow and KFP: the same bytes?",
        needs=KFP,
        uses=("argo", "airflow", "kubeflow", "runtime"),
        seed=None,
        page="proofs/artifacts.md",
    ),
    # `gpuflow run`.
    "local-kills": Proof(
        "random pipelines under gpuflow run, hurt at random moments and resumed: do they end as if undisturbed?",
        takes="30 minutes for 300 on two idle cores",
        count=300,
        options={"workers": "2"},
        page="proofs/local.md",
    ),
    "local-outputs": Proof(
        "a table of pipelines on this machine, on Argo, Airflow and KFP: the same bytes? (--local: here alone)",
        needs=KFP,
        uses=("argo", "airflow", "kubeflow", "runtime"),
        seed=None,
        page="proofs/local.md",
    ),
    "local-corpora": Proof(
        "what of others' files and of our own examples and constructs runs on this machine, with stand-in programs",
        takes="10 minutes",
        seed=None,
        options={"workers": "2"},
        page="proofs/local.md",
    ),
    # Trust.
    "trust": Proof(
        "hostile text in every field, for every target and every format",
        count=20_000,
        stages=(
            *(
                _one(each, f"-m proofs.trust --environment {each} --count {{count}} --seed {{seed}}")
                for each in ("argo", "airflow", "kubeflow", "core")
            ),
            _one("core", "-m proofs.trust --sum --seed {seed}"),
        ),
        to_the_end=True,
        page="proofs/trust.md",
    ),
    "trust-store": Proof(
        "changed objects of a store: nothing of them is believed", count=5_600, page="docs/design/supervisor.md"
    ),
    # Engines.
    "retries": Proof(
        "retry budgets on a real cluster: each row of the table of evidence and --count random faults "
        "(--engine argo, airflow or both)",
        needs=GO_AND_ROOT,
        takes="15 minutes once the engines are built",
        uses=("argo", "airflow"),
        count=200,
        page="proofs/retries.md",
    ),
    "spec": Proof(
        "dates, patches of the pod and alerts, on a whole Airflow and on Argo",
        needs=GO_AND_ROOT,
        uses=("argo",),
        seed=None,
        stages=(
            _tests(
                "airflow",
                "tests/targets/airflow/test_airflow_backfill.py tests/targets/airflow/test_airflow_alerts.py",
            ),
            _tests(
                "core",
                "tests/cluster/test_argo_dates.py tests/cluster/test_merge.py tests/cluster/test_pod_fields.py "
                "tests/targets/argo/test_argo_cluster_alerts.py "
                "tests/gitops/test_argo_cluster.py::test_what_init_writes_runs_once_its_account_is_applied " + LIVE,
            ),
        ),
        page="docs/proof-ground-cluster.md",
    ),
    "airflow": Proof(
        "six cases on a real Airflow and a private cluster, three beside their KubernetesPodOperator original",
        needs=GO_AND_ROOT,
        takes="9 minutes once the engines are built",
        uses=("airflow",),
        seed=None,
        page="proofs/airflow.md",
    ),
    "airflow-ending": Proof(
        "random pipelines on a real Airflow scheduler: exit steps and deletions only after the last end "
        "(--workers: with whole workers)",
        takes="20 minutes",
        environment="airflow",
        count=200,
        page="docs/design/second-review.md",
    ),
    "airflow-older": Proof(
        "standalone DAG files on Airflow 2.10, 2.11, 3.0 and 3.1 (or those that are named), each installed and run",
        needs="the package index",
        seed=None,
        page="docs/reference/versions.md",
    ),
    "kubeflow": Proof(
        "examples, constructs, interruptions (--count more), caching and schedules on a real Kubeflow Pipelines",
        needs=KFP,
        environment="kubeflow",
        count=0,
        page="proofs/kubeflow.md",
    ),
    # Gangs.
    "gangs": Proof(
        "gangs and topologies asked of Kueue's code, killed ranks, launchers on a control plane, gangs on engines",
        needs=GO_AND_ROOT,
        uses=("argo", "airflow", "kubeflow"),
        count=30,
        options={"queued": "5000"},
        stages=(
            _one("core", "-m tests.differential --kind gangs --cases {queued} --seed {seed}"),
            _one("core", "-m tests.differential --kind topology --cases {queued} --seed {seed}"),
            _tests("core", "tests/runtime/test_gang_killing.py", GANG_KILLS="{count}", GANG_SEED="{seed}"),
            _one("core", "-m proofs.shards --count {count} --seed {seed}"),
            _tests("core", f"{' '.join([*LAUNCHERS, *ON_ENGINES])} {LIVE}"),
        ),
        page="proofs/gangs.md",
    ),
    "gang-faults": Proof(
        "one gang on Argo and one on Airflow, each hurt --count times: every fault costs what the spec says",
        needs=GO_AND_ROOT,
        takes="45 minutes once the engines are built",
        uses=("argo", "airflow"),
        count=30,
        stages=(
            _tests(
                "core",
                "tests/cluster/test_gang_faults.py -m cluster -s -rs",
                GANG_FAULTS="{count}",
                GANG_SEED="{seed}",
            ),
        ),
        page="proofs/gangs.md",
    ),
    "shards": Proof(
        "kills of a sharded PyTorch training, in four processes and over four pods on Argo",
        needs="Go, root, 3 GB of downloads",
        uses=("argo",),
        count=10,
        stages=(
            _one("frameworks", "-m proofs.shards --count {count} --seed {seed} --training fsdp"),
            _tests(
                "core",
                "tests/cluster/test_torchrun_gang.py -m cluster -rs",
                TORCHRUN_KILLS="{count}",
                TORCHRUN_SEED="{seed}",
            ),
        ),
        page="proofs/gangs.md",
    ),
}
