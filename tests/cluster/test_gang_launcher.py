"""`gpuflow-run gang` as a process with an account of its own, against a real API server, Job controller and JobSet.

The ends of the pods are written by hand (kubelet_by_hand.py), so that every ending comes at the wanted moment.

Tests gpuflow/runtime/gangs/gang_command.py and gpuflow/runtime/gangs/watch.py.
"""

from __future__ import annotations

import base64
import copy
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from ..conftest import ROOT
from . import kubelet_by_hand, nodes
from .cluster import Cluster
from .fixtures import AnyCluster
from .gangs import gang, ranks
from .kube import Kube
from .waiting import until

pytestmark = pytest.mark.control_plane

NODE = "gang-launcher"
POOL = {"gpuflow.test/pool": NODE}
ONLY_POOL: dict[str, Any] = {"nodeSelector": POOL, "tolerations": [{"key": nodes.FENCE["key"], "operator": "Exists"}]}
SIZE = 3
RULES = [
    {"apiGroups": ["jobset.x-k8s.io"], "resources": ["jobsets"], "verbs": ["create", "get", "list", "patch", "delete"]},
    {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["list"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]},
    {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]},
    {"apiGroups": [""], "resources": ["events"], "verbs": ["list"]},
]


@pytest.fixture(scope="module")
def node(private_cluster: Cluster, jobset: AnyCluster) -> Iterator[str]:
    with nodes.standing(private_cluster.kube, NODE, POOL) as name:
        yield name


@pytest.fixture
def second_node(node: str, private_cluster: Cluster) -> Iterator[str]:
    with nodes.standing(private_cluster.kube, f"{NODE}-2", POOL) as name:
        yield name


class Launch:
    """Launchers of one test, and their gang."""

    def __init__(self, cluster: Cluster, kube: Kube, folder: Path) -> None:
        self.cluster, self.kube, self.folder = cluster, kube, folder
        self.processes: list[subprocess.Popen[str]] = []
        self.account = folder / "account"

    def permit(self, rules: Sequence[dict[str, Any]] = RULES) -> None:
        """An account with these rights, its token in a folder as a pod would have it."""
        where = {"namespace": self.kube.namespace}
        role = {"apiVersion": "rbac.authorization.k8s.io/v1"}
        subject = {"kind": "ServiceAccount", "name": "launcher", **where}
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "gang"}
        self.kube.apply(
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "launcher"}},
            {**role, "kind": "Role", "metadata": {"name": "gang"}, "rules": list(rules)},
            {**role, "kind": "RoleBinding", "metadata": {"name": "gang"}, "subjects": [subject], "roleRef": reference},
        )
        self.account.mkdir(exist_ok=True)
        (self.account / "token").write_text(self.kube("create", "token", "launcher", "--duration=1h"))
        (self.account / "namespace").write_text(self.kube.namespace)
        view = json.loads(self.kube("config", "view", "--raw", "-o", "json"))["clusters"][0]["cluster"]
        authority = view.get("certificate-authority-data")
        text = base64.b64decode(authority).decode() if authority else Path(view["certificate-authority"]).read_text()
        (self.account / "ca.crt").write_text(text)
        self.server = view["server"].removeprefix("https://")

    def start(
        self, *words: str, step: str = "train", pod: str = "", change: Callable[[dict[str, Any]], None] | None = None
    ) -> subprocess.Popen[str]:
        manifest = gang(
            "", SIZE, "gpuflow.test/never-pulled:1", ["train"], pod_labels=kubelet_by_hand.LABELS, **ONLY_POOL
        )
        del manifest["metadata"]["name"]
        manifest["metadata"]["annotations"] = {"gpuflow.test/by": "test"}
        manifest["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"][
            "terminationGracePeriodSeconds"
        ] = 1
        if change is not None:
            change(manifest)
        host, _, port = self.server.partition(":")
        environ = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT),
            "GPUFLOW_SERVICE_ACCOUNT": str(self.account),
            "KUBERNETES_SERVICE_HOST": host,
            "KUBERNETES_SERVICE_PORT": port or "443",
            "GPUFLOW_POD_NAME": pod,
        }
        given = ["--pipeline", "p", "--step", step, "--run-id", "r", "--settle", "8s", "--grace", "5s"]
        command = [
            sys.executable,
            "-m",
            "gpuflow.runtime.supervise.main",
            "gang",
            "--manifest",
            json.dumps(manifest),
            *given,
        ]
        log = self.folder / f"log-{len(self.processes)}"
        with log.open("w") as file:
            process = subprocess.Popen(
                [*self.cluster.enter, *command, "--termination-log", str(self.last_words), *words],
                env=environ, stdout=file, stderr=subprocess.STDOUT, text=True,
            )  # fmt: skip
        self.processes.append(process)
        return process

    @property
    def last_words(self) -> Path:
        path = self.folder / "termination-log"
        path.touch()
        return path

    def said(self) -> str:
        return "".join((self.folder / f"log-{number}").read_text() for number in range(len(self.processes)))

    def jobsets(self) -> dict[int, dict[str, Any]]:
        found = self.kube.list("jobset")
        return {int(each["metadata"]["annotations"]["gpuflow.dev/attempt"]): each for each in found}

    def running(self, attempt: int = 1) -> list[dict[str, Any]]:
        """The pods of an attempt, all of them started."""

        def placed() -> list[dict[str, Any]]:
            jobset = self.jobsets().get(attempt)
            found = ranks(self.kube, jobset["metadata"]["name"]) if jobset else []
            found = [each for each in found if each["spec"].get("nodeName")]
            return found if len(found) == SIZE else []

        pods = until(f"attempt {attempt}", placed, timeout=60, otherwise=self.said)
        for each in pods:
            kubelet_by_hand.start(self.kube, each)
        line = f"JobSet {self.jobsets()[attempt]['metadata']['name']}: running, {SIZE} of {SIZE} pods"
        until("the launcher to see it run", lambda: line in self.said(), timeout=60, otherwise=self.said)
        return pods

    def sweep(self, attempt: int) -> None:
        """What a kubelet does with the ranks that the Job controller deleted."""
        name = self.jobsets()[attempt]["metadata"]["name"]
        for each in ranks(self.kube, name):
            if each["metadata"].get("deletionTimestamp"):
                kubelet_by_hand.end(self.kube, each, 75)
                kubelet_by_hand.bury(self.kube, each)

    def swept(self, attempt: int) -> None:
        name = self.jobsets()[attempt]["metadata"]["name"]

        def going() -> bool:
            return any(each["metadata"].get("deletionTimestamp") for each in ranks(self.kube, name))

        until("the survivors to be deleted", going, timeout=60, otherwise=self.said)
        self.sweep(attempt)

    def code(self, number: int = -1, timeout: float = 90) -> int:
        return until("the launcher to end", lambda: (self.processes[number].poll(),) if self.processes[number].poll()
                     is not None else None, timeout=timeout, otherwise=self.said)[0]  # fmt: skip

    def counts(self, attempt: int) -> tuple[str, str]:
        notes = self.jobsets()[attempt]["metadata"]["annotations"]
        return notes["gpuflow.dev/failures"], notes["gpuflow.dev/interruptions"]


@pytest.fixture
def launch(node: str, private_cluster: Cluster, namespace: Kube, tmp_path: Path) -> Iterator[Launch]:
    made = Launch(private_cluster, namespace, tmp_path)
    made.permit()
    yield made
    for process in made.processes:
        if process.poll() is None:
            process.kill()
            process.wait()


BOTH = ("--failures", "1", "--interruptions", "1")


def test_a_disrupted_rank_costs_one_interruption_and_a_failed_one_a_failure(launch: Launch) -> None:
    launch.start(*BOTH)
    pods = launch.running()
    kubelet_by_hand.end(launch.kube, pods[2], 143, disruption="EvictionByEvictionAPI")
    launch.swept(1)
    pods = launch.running(2)
    assert launch.counts(2) == ("0", "1")
    kubelet_by_hand.end(launch.kube, pods[1], 1)
    launch.swept(2)
    pods = launch.running(3)
    assert launch.counts(3) == ("1", "1")
    kubelet_by_hand.end(launch.kube, pods[0], 7)
    launch.swept(3)
    assert launch.code() == 79
    facts = json.loads(launch.last_words.read_text().splitlines()[-1])
    assert (facts["outcome"], facts["own_exit_code"], facts["failures"]) == ("failed (final)", 7, 2)
    assert "the budget of 1 failures is spent" in launch.said()
    assert len(launch.jobsets()) == 3


def test_a_rank_that_fails_first_does_not_hide_one_that_is_taken_away_three_seconds_later(launch: Launch) -> None:
    launch.start("--interruptions", "1")
    pods = launch.running()
    kubelet_by_hand.end(launch.kube, pods[0], 1)
    until(
        "the launcher to see the failure", lambda: "worker 0: it failed with exit code 1" in launch.said(), timeout=60
    )
    kubelet_by_hand.end(launch.kube, pods[2], 143, disruption="PreemptionByScheduler")
    until("the next attempt", lambda: 2 in launch.jobsets() or launch.sweep(1), timeout=60, otherwise=launch.said)
    assert launch.counts(2) == ("0", "1")


# (how rank 1 ends, exit code, word in the log)
ENDS: dict[str, tuple[dict[str, Any], str]] = {
    "final": ({"code": 79}, "the supervisor says: do not start it again"),
    "memory": ({"code": 137, "reason": "OOMKilled"}, "it was over its memory limit; the budget of 0 failures"),
    "runtime": ({"code": 78}, "gpuflow-run could not work in it"),
}


@pytest.mark.parametrize("how", ENDS)
def test_ends_for_good(how: str, launch: Launch) -> None:
    end, words = ENDS[how]
    launch.start("--interruptions", "5")
    pods = launch.running()
    kubelet_by_hand.end(launch.kube, pods[1], **end)
    launch.swept(1)
    assert launch.code() == 79
    assert words in launch.said()


def test_a_gang_that_runs_too_long_has_timed_out(launch: Launch) -> None:
    def short(manifest: dict[str, Any]) -> None:
        manifest["spec"]["replicatedJobs"][0]["template"]["spec"]["activeDeadlineSeconds"] = 25

    launch.start("--interruptions", "5", change=short)
    launch.running()
    launch.swept(1)
    assert launch.code() == 79
    assert "it ran longer than it may" in launch.said()


WORDS = "gpuflow-run: attempt 1 succeeded\n" + json.dumps({"gpuflow": 1, "outputs": {"accuracy": "0.9", "n": 3}})


@pytest.mark.parametrize("said", ["all", "none"])
def test_outputs_come_from_rank_0_and_without_them_it_is_no_success(said: str, launch: Launch) -> None:
    outputs = launch.folder / "outputs"
    launch.start("--outputs-dir", str(outputs), "--output", "accuracy:float", "--output", "n:int")
    for rank, each in enumerate(launch.running()):
        kubelet_by_hand.end(launch.kube, each, 0, message=WORDS if rank == 0 and said == "all" else "")
    if said == "all":
        assert launch.code() == 0
        assert ((outputs / "accuracy").read_text(), (outputs / "n").read_text()) == ("0.9", "3")
        launch.start("--outputs-dir", str(outputs), "--output", "accuracy:float")
        assert launch.code() == 0 and len(launch.jobsets()) == 1
    else:
        assert launch.code() == 79
        assert "rank 0 left no outputs" in launch.said() and not (outputs / "accuracy").exists()


def test_a_launcher_that_is_killed_is_followed_by_one_that_goes_on(launch: Launch) -> None:
    launch.start("--failures", "2", "--backoff", "10m")
    pods = launch.running()
    launch.processes[0].kill()
    launch.start("--failures", "2", "--backoff", "10m")
    until("the second one", lambda: "created before; going on with it" in launch.said(), timeout=60)
    assert list(launch.jobsets()) == [1]
    kubelet_by_hand.end(launch.kube, pods[1], 1)
    launch.swept(1)
    # Between the verdict and the next attempt: what was found out stays, though its evidence goes.
    until("the wait", lambda: "the next attempt begins in 10 min" in launch.said(), timeout=60, otherwise=launch.said)
    launch.processes[1].kill()
    for each in pods:
        launch.kube("delete", "pod", each["metadata"]["name"], "--ignore-not-found", "--grace-period=0", "--force")
    launch.start("--failures", "2")
    launch.running(2)
    assert launch.counts(2) == ("1", "0")


def test_later_attempts_get_more_memory_other_nodes_and_leave_spot_and_no_lost_launcher_forgets_it(
    launch: Launch, second_node: str
) -> None:
    """One budget after the other, with a launcher that is killed between two attempts."""

    def sized(manifest: dict[str, Any]) -> None:
        spec = manifest["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
        spec["containers"][0]["resources"] = {"limits": {"memory": "64Mi"}}
        spec["tolerations"] = [*spec["tolerations"], {"key": "spot", "operator": "Exists"}]

    plain = json.dumps({"tolerations": ONLY_POOL["tolerations"]})
    words = ("--failures", "2", "--interruptions", "1", "--more-memory", "2:96Mi", "--other-node")
    words += ("--fallback-after", "1", "--on-demand", plain)

    def seen(attempt: int) -> tuple[str, bool, set[str]]:
        specs = [each["spec"] for each in ranks(launch.kube, launch.jobsets()[attempt]["metadata"]["name"])]
        on_spot = any(entry.get("key") == "spot" for entry in specs[0]["tolerations"])
        return specs[0]["containers"][0]["resources"]["limits"]["memory"], on_spot, {each["nodeName"] for each in specs}

    launch.start(*words, "--backoff", "10m", change=sized)
    pods = launch.running()
    assert seen(1)[:2] == ("64Mi", True)
    bad = pods[1]["spec"]["nodeName"]
    kubelet_by_hand.end(launch.kube, pods[1], 137, reason="OOMKilled")
    launch.swept(1)
    until("the wait", lambda: "the next attempt begins in 10 min" in launch.said(), timeout=60, otherwise=launch.said)
    launch.processes[0].kill()
    for each in pods:
        launch.kube("delete", "pod", each["metadata"]["name"], "--ignore-not-found", "--grace-period=0", "--force")

    launch.start(*words, change=sized)
    pods = launch.running(2)
    (good,) = {NODE, second_node} - {bad}
    assert seen(2) == ("96Mi", True, {good})
    assert "memory 96Mi instead of 64Mi after running out of it once" in launch.said()
    assert f"not on {bad}, where a rank failed" in launch.said()
    launch.processes[1].kill()

    launch.start(*words, change=sized)
    until("the third one", lambda: launch.said().count("created before; going on") == 2, timeout=60)
    kubelet_by_hand.end(launch.kube, pods[2], 143, disruption="EvictionByEvictionAPI")
    launch.swept(2)
    launch.running(3)
    assert seen(3) == ("96Mi", False, {good}), "what was known before is still known after an interruption"
    assert "off spot nodes after being interrupted once" in launch.said()
    assert launch.counts(3) == ("1", "1")


ROLE = "jobset.sigs.k8s.io/replicatedjob-name"
FIRST = {"gpuflow": 1, "outcome": "out of memory", "exit_code": 137, "cause_rank": 2, "because": "rank 2: memory"}


def led(manifest: dict[str, Any]) -> None:
    """Two workers, and a leader with less memory before them."""
    (workers,) = manifest["spec"]["replicatedJobs"]
    leader = copy.deepcopy({**workers, "name": "leader"})
    for job, pods, memory in ((leader, 1, "32Mi"), (workers, SIZE - 1, "64Mi")):
        job["template"]["spec"] |= {"parallelism": pods, "completions": pods}
        job["template"]["spec"]["template"]["spec"]["containers"][0]["resources"] = {"limits": {"memory": memory}}
    manifest["spec"] |= {"replicatedJobs": [leader, workers]}
    manifest["spec"]["coordinator"]["replicatedJob"] = "leader"


def test_a_leader_and_its_workers_are_one_gang_whose_ranks_follow_each_other(launch: Launch, second_node: str) -> None:
    words = ("--failures", "1", "--more-memory", "2:96Mi", "--other-node", "--outputs-dir", str(launch.folder / "o"))
    launch.start(*words, "--output", "accuracy:float", change=led)

    def all_of(attempt: int) -> list[dict[str, Any]]:
        """The leader, and the workers by their index."""
        return sorted(launch.running(attempt), key=lambda each: str(each["metadata"]["labels"][ROLE]))

    leader, *workers = all_of(1)
    name = launch.jobsets()[1]["metadata"]["name"]
    hosts = {each["metadata"]["annotations"]["jobset.sigs.k8s.io/coordinator"] for each in (leader, *workers)}
    assert hosts == {f"{name}-leader-0-0.{name}"}
    bad = workers[1]["spec"]["nodeName"]
    kubelet_by_hand.end(launch.kube, leader, 137, message="gpuflow-run: words\n" + json.dumps(FIRST))
    until("attempt 2", lambda: 2 in launch.jobsets() or launch.sweep(1), timeout=60, otherwise=launch.said)

    leader, *workers = all_of(2)
    assert launch.counts(2) == ("1", "0")
    assert bad not in {each["spec"]["nodeName"] for each in (leader, *workers)}, "worker 1 is rank 2"
    memory = [each["spec"]["containers"][0]["resources"]["limits"]["memory"] for each in (leader, *workers)]
    assert memory == ["64Mi", "96Mi", "96Mi"] and "leader: memory 64Mi instead of 32Mi" in launch.said()
    for each in (leader, *workers):
        kubelet_by_hand.end(launch.kube, each, 0, message=WORDS if each is leader else "")
    assert launch.code() == 0
    assert (launch.folder / "o" / "accuracy").read_text() == "0.9"


def test_a_jobset_that_somebody_deletes_is_an_interruption(launch: Launch) -> None:
    launch.start("--interruptions", "1")
    pods = launch.running()
    launch.kube("delete", "jobset", "--all", "--wait=false")
    for each in pods:
        kubelet_by_hand.bury(launch.kube, each)
    launch.running(2)
    assert launch.counts(2) == ("0", "1")
    assert "somebody deleted the JobSet" in launch.said()


@pytest.mark.parametrize(
    ("owner", "taken_away", "goes_on"), [("none", True, True), ("none", False, False), ("pod", True, False)]
)
def test_told_to_stop(owner: str, taken_away: bool, goes_on: bool, launch: Launch) -> None:
    own = {"name": "launcher", "labels": kubelet_by_hand.LABELS}
    launch.kube.create(
        {"apiVersion": "v1", "kind": "Pod", "metadata": own,
         "spec": {"containers": [{"name": "main", "image": "i"}], **ONLY_POOL}}
    )  # fmt: skip
    launch.start("--owner", owner, pod="launcher")
    pods = launch.running()
    if owner == "pod":
        (reference,) = launch.jobsets()[1]["metadata"]["ownerReferences"]
        assert (reference["kind"], reference["name"], "controller" in reference) == ("Pod", "launcher", False)
    if taken_away:
        kubelet_by_hand.disrupt(launch.kube, {"metadata": own, "status": {}}, "EvictionByEvictionAPI")
    launch.processes[0].send_signal(signal.SIGTERM)
    assert launch.code() == 75
    if goes_on:
        assert "metadata" in launch.jobsets()[1] and "deletionTimestamp" not in launch.jobsets()[1]["metadata"]
    else:
        for each in pods:
            kubelet_by_hand.bury(launch.kube, each)
        until("the gang to be gone", lambda: not launch.jobsets(), timeout=60)


def test_a_gang_that_goes_with_its_launchers_pod_is_taken_over_by_the_next(launch: Launch) -> None:
    def pod(name: str) -> dict[str, Any]:
        metadata = {"name": name, "labels": kubelet_by_hand.LABELS}
        made = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}
        launch.kube.create({**made, "spec": {"containers": [{"name": "main", "image": "i"}], **ONLY_POOL}})
        address = {"status": {"phase": "Running", "podIP": "10.1.2.3", "podIPs": [{"ip": "10.1.2.3"}]}}
        launch.kube("patch", "pod", name, "--subresource=status", "--type=merge", f"--patch={json.dumps(address)}")
        return launch.kube.get("pod", name)

    def owner() -> str:
        (reference,) = launch.jobsets()[1]["metadata"]["ownerReferences"]
        return str(reference["uid"])

    first = pod("first")
    launch.start("--owner", "pod", pod="first")
    ranks_of_it = launch.running()
    assert owner() == first["metadata"]["uid"]
    assert all(each["metadata"]["name"] in launch.said() for each in ranks_of_it)
    environ = {entry["name"]: entry.get("value", "") for entry in ranks_of_it[0]["spec"]["containers"][0]["env"]}
    assert environ["GPUFLOW_LAUNCHER"].startswith("10.1.2.3:"), "rank 0 knows whom to hold on to"
    launch.processes[0].kill()
    second = pod("second")
    launch.start("--owner", "pod", pod="second")
    until("the second one", lambda: owner() == second["metadata"]["uid"], timeout=60, otherwise=launch.said)
    assert list(launch.jobsets()) == [1]


def test_half_a_gang_is_said_and_ends_with_the_queue_timeout(launch: Launch) -> None:
    launch.kube.create(
        {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": {"pods": "1"}}}
    )
    until("the quota", lambda: (launch.kube.get("quota", "q") or {}).get("status", {}).get("hard"), timeout=60)
    launch.start("--queue-timeout", "15s", "--failures", "5")
    assert launch.code() == 79
    assert "0 of 3 pods running, 1 there; Error creating: a pod is forbidden: exceeded quota: q" in launch.said()
    assert "waited longer than 15 s" in launch.said()


def test_the_longest_name_is_accepted(launch: Launch) -> None:
    def plain(manifest: dict[str, Any]) -> None:
        del manifest["spec"]["coordinator"]

    launch.start(step="Pretrain_the.very-large-modelofeverything-and-more", change=plain)
    launch.running()
    name = launch.jobsets()[1]["metadata"]["name"]
    assert len(name) == 46 and name.startswith("pretrain-the-very-large-model")
    launch.processes[0].kill()
    launch.start(step="With-a-coordinator-the-name-comes-twice")
    until("the second gang", lambda: len(launch.kube.list("jobset")) == 2, timeout=60, otherwise=launch.said)


@pytest.mark.parametrize("lacking", ["jobsets", "jobs", "pods"])
def test_a_right_that_is_missing_is_named(lacking: str, launch: Launch) -> None:
    launch.permit([rule for rule in RULES if rule["resources"] != [lacking]])
    launch.start()
    assert launch.code() == 78
    assert f'cannot list resource "{lacking}"' in launch.said()
    assert not launch.jobsets()


def test_an_api_server_that_is_away_for_a_while_is_waited_for(launch: Launch) -> None:
    launch.start("--failures", "1", "--backoff", "2s")
    pods = launch.running()
    launch.cluster.restart("kube-apiserver")
    until("the API server", launch.kube.answers, timeout=90)
    assert launch.processes[0].poll() is None
    kubelet_by_hand.end(launch.kube, pods[1], 1)
    launch.swept(1)
    launch.running(2)
    assert launch.counts(2) == ("1", "0") and "the next attempt begins in 2 s" in launch.said()
