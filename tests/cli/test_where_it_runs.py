"""A document says where it runs and on what: its namespace, and the engine that its kind belongs to."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import gpuflow
from gpuflow.cluster import live
from gpuflow.cluster.api_server import Answer as Served
from gpuflow.core.emit import emit_all
from gpuflow.core.errors import GpuflowError
from tests.cli.commands import Gpuflow

GPU = "requests.nvidia.com/gpu"
LISTED = ["LimitRange", "ServiceAccount", "PriorityClass", "RuntimeClass", "Pod", "LocalQueue", "ClusterQueue"]
SITE = "{apiVersion: gpuflow/v1, kind: Site, extends: nvidia, namespace: a}\n"
PIPELINE = """apiVersion: gpuflow/v1
kind: Pipeline
name: ours
steps:
  only: {image: i, command: [c], cpu: 1, memory: 1Gi}
"""
KFP = """pipelineInfo: {name: kfp}
schemaVersion: 2.1.0
root:
  dag: {tasks: {t: {componentRef: {name: c}, taskInfo: {name: t}}}}
components: {c: {executorLabel: e}}
deploymentSpec:
  executors:
    e: {container: {image: i, command: [c], resources: {resourceCpuRequest: "1", resourceCpuLimit: "1"}}}
"""

Tree = dict[str, Any]


def job(name: str, namespace: str | None, gpus: int = 1, queue: str | None = None, cpu: int = 1) -> Tree:
    metadata: Tree = {"name": name}
    if namespace is not None:
        metadata["namespace"] = namespace
    if queue is not None:
        metadata["labels"] = {"kueue.x-k8s.io/queue-name": queue}
    resources = {"limits": {"cpu": str(cpu), **({"nvidia.com/gpu": str(gpus)} if gpus else {})}}
    container = {"name": "main", "image": "i", "resources": resources}
    pod = {"restartPolicy": "Never", "containers": [container]}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": {"spec": pod}}}


def workflow(name: str, namespace: str | None, template: Tree) -> Tree:
    metadata = {"name": name, **({} if namespace is None else {"namespace": namespace})}
    spec = {"entrypoint": "main", "templates": [{"name": "main", **template}]}
    return {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "metadata": metadata, "spec": spec}


def quota(namespace: str | None, hard: Tree) -> Tree:
    metadata = {"name": "q", **({} if namespace is None else {"namespace": namespace})}
    status = {"hard": hard, "used": dict.fromkeys(hard, "0")}
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": {"hard": hard}, "status": status}


def node(name: str, gpus: int) -> Tree:
    allocatable = {"cpu": "64", "memory": "256Gi", "pods": "110", "nvidia.com/gpu": str(gpus)}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": {"allocatable": allocatable}}


def of_kueue(kind: str, name: str, spec: Tree, namespace: str | None = None) -> Tree:
    metadata = {"name": name, **({} if namespace is None else {"namespace": namespace})}
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": metadata, "spec": spec}


def cluster_queue(name: str, cohort: str, gpus: int) -> Tree:
    resources = [{"name": key, "nominalQuota": most} for key, most in (("nvidia.com/gpu", gpus), ("cpu", 99))]
    group = {"coveredResources": ["nvidia.com/gpu", "cpu"], "flavors": [{"name": "f", "resources": resources}]}
    return of_kueue("ClusterQueue", name, {"cohortName": cohort, "namespaceSelector": {}, "resourceGroups": [group]})


def snapshot(*objects: Tree, namespaces: tuple[str, ...] = (), assumed: tuple[str, ...] = ("Node",)) -> list[Tree]:
    listed = [*LISTED, *(["Namespace"] if namespaces else [])]
    record = {"apiVersion": "gpuflow/v1", "kind": "Snapshot", "listed": listed, "assumed": list(assumed)}
    homes = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in namespaces]
    return [record, *homes, *objects]


def write(file: str, *trees: Tree) -> str:
    Path(file).write_text(emit_all(list(trees)))
    return file


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a cluster: namespace a has room for 8 GPUs, namespace b for none."""
    monkeypatch.chdir(tmp_path)
    write("cluster.yaml", *snapshot(quota("a", {GPU: "8"}), quota("b", {GPU: "0"})))
    Path("site.yaml").write_text(SITE)
    return tmp_path


CHECK = ("--cluster", "cluster.yaml", "--format", "json")


def verdicts(answer: Any) -> dict[str, str]:
    found = answer if isinstance(answer, list) else [answer]
    return {f"{each['namespace']}/{each['pipeline']}": each["verdict"] for each in found if "together" not in each}


# Namespaces.


@pytest.mark.parametrize("site", [(), ("--site", "site.yaml")])
@pytest.mark.parametrize("as_list", [False, True])
def test_a_document_is_judged_in_its_own_namespace(
    folder: Path, gpuflow: Gpuflow, site: tuple[str, ...], as_list: bool
) -> None:
    trees = [job("j", "a"), job("j", "b")]
    write("j.yaml", *([{"apiVersion": "v1", "kind": "List", "items": trees}] if as_list else trees))
    answer = gpuflow("check", "j.yaml", *CHECK, *site)
    assert verdicts(answer.data) == {"a/j": "always", "b/j": "never"}
    assert answer.code == 1


def test_a_namespace_of_the_site_that_the_document_leaves_is_said(folder: Path, gpuflow: Gpuflow) -> None:
    write("j.yaml", job("j", "b"))
    answer = gpuflow("check", "j.yaml", *CHECK, "--site", "site.yaml").data
    (note,) = [each for each in answer["findings"] if each["code"] == "GF746"]
    assert (answer["namespace"], note["severity"], note["where"]["line"]) == ("b", "note", 5)
    assert '"b"' in note["message"] and '"a"' in note["message"]
    assert "GF746" in gpuflow("demand", "j.yaml", "--site", "site.yaml").err


@pytest.mark.parametrize("words", [("check", *CHECK), ("demand",), ("show",)])
def test_a_contradiction_is_an_error_with_its_place(folder: Path, gpuflow: Gpuflow, words: tuple[str, ...]) -> None:
    write("j.yaml", job("j", "a"), job("k", "b"), job("l", "c"))
    answer = gpuflow(words[0], "j.yaml", "--namespace", "a", *words[1:])
    assert (answer.code, answer.out) == (2, "")
    assert 'GF745 Job k names the namespace "b", and --namespace says "a"' in answer.err
    assert 'GF745 Job l names the namespace "c"' in answer.err and "Job j" not in answer.err
    line = Path("j.yaml").read_text().splitlines().index("  namespace: b") + 1
    assert f"j.yaml:{line}:" in answer.err and "leave --namespace out" in answer.err


def test_the_option_is_for_documents_that_name_none(folder: Path, gpuflow: Gpuflow) -> None:
    write("j.yaml", job("j", "b"), job("k", None))
    assert verdicts(gpuflow("check", "j.yaml", *CHECK, "--namespace", "b").data) == {"b/j": "never", "b/k": "never"}
    answer = gpuflow("check", "j.yaml", *CHECK)
    assert answer.code == 2 and "GF904 no namespace is given, and Job k names none" in answer.err
    assert verdicts(gpuflow("check", "j.yaml", *CHECK, "--site", "site.yaml").data) == {"b/j": "never", "a/k": "always"}


@pytest.mark.parametrize("named", ["Team_B", 5, "{{ns}}"])
def test_what_is_no_namespace_is_an_error(folder: Path, gpuflow: Gpuflow, named: Any) -> None:
    write("j.yaml", job("j", named))
    answer = gpuflow("check", "j.yaml", *CHECK)
    assert answer.code == 2 and "j.yaml:5:14: GF138 metadata.namespace of the Job cannot be" in answer.err


def test_an_empty_namespace_names_none_and_one_of_a_kind_without_any_is_passed_over(
    folder: Path, gpuflow: Gpuflow
) -> None:
    shared = {**workflow("t", "b", {"container": {"image": "i"}}), "kind": "ClusterWorkflowTemplate"}
    write("j.yaml", job("j", ""), shared)
    answer = gpuflow("check", "j.yaml", *CHECK, "--namespace", "a")
    assert verdicts(answer.data) == {"a/j": "always", "a/t": "always"}


def test_standard_input_says_its_namespace(folder: Path) -> None:
    command = [sys.executable, "-m", "gpuflow", "check", "-", *CHECK]
    done = subprocess.run(command, input=emit_all([job("j", "b")]), capture_output=True, text=True, check=False)
    assert (done.returncode, json.loads(done.stdout)["namespace"]) == (1, "b"), done.stderr


@pytest.mark.parametrize("form", ["text", "markdown", "junit", "github", "sarif"])
def test_every_format_says_the_namespace(folder: Path, gpuflow: Gpuflow, form: str) -> None:
    write("j.yaml", job("j", "b"))
    shown = gpuflow("check", "j.yaml", "--cluster", "cluster.yaml", "--format", form).out
    word = {"text": "in namespace b", "markdown": "in `b`", "sarif": "GF501"}.get(form, "j in b")
    assert word in shown


def test_a_namespace_that_does_not_exist_is_never_in_the_servers_words(folder: Path, gpuflow: Gpuflow) -> None:
    write("j.yaml", job("j", "c"))
    write("cluster.yaml", *snapshot(quota("a", {GPU: "8"}), namespaces=("a", "b")))
    answer = gpuflow("check", "j.yaml", *CHECK).data
    (said,) = [each for each in answer["findings"] if each["kubernetes"]]
    assert (answer["verdict"], said["code"], said["kubernetes"]) == ("never", "GF538", 'namespaces "c" not found')


def test_a_namespace_of_which_nothing_is_shown_is_unknown_and_said(folder: Path, gpuflow: Gpuflow) -> None:
    write("j.yaml", job("j", "c"))
    answer = gpuflow("check", "j.yaml", *CHECK).data
    assert answer["verdict"] == "unknown"
    assert 'the snapshot has no object of namespace "c"' in [each["message"] for each in answer["findings"]]


def test_the_snapshot_of_another_namespace_is_said(folder: Path, gpuflow: Gpuflow) -> None:
    record, *rest = snapshot(quota("a", {GPU: "8"}))
    write("cluster.yaml", {**record, "namespace": "a"}, *rest)
    write("j.yaml", job("j", "a"), job("k", "b"))
    answer = gpuflow("check", "j.yaml", *CHECK)
    assert verdicts(answer.data) == {"a/j": "always", "b/k": "unknown"}
    assert 'the snapshot is of namespace "a": it does not show what limits "b"' in answer.out.replace('\\"', '"')


def test_manifests_without_a_namespace_are_where_documents_without_one_are(folder: Path, gpuflow: Gpuflow) -> None:
    write("cluster.yaml", *snapshot(quota(None, {GPU: "0"}), quota("b", {GPU: "8"})))
    write("j.yaml", job("j", None), job("k", "b"))
    answer = gpuflow("check", "j.yaml", *CHECK, "--site", "site.yaml")
    assert verdicts(answer.data) == {"a/j": "never", "b/k": "always"}
    write("j.yaml", job("k", "c"))
    write("cluster.yaml", *snapshot(quota(None, {GPU: "0"})))
    assert verdicts(gpuflow("check", "j.yaml", *CHECK).data) == {"c/k": "never"}, "kubectl apply -n c puts it there"


def test_a_template_of_another_team_is_not_taken(folder: Path, gpuflow: Gpuflow) -> None:
    def template(namespace: str, gpus: int) -> Tree:
        pod = {"container": {"image": "i", "resources": {"limits": {"nvidia.com/gpu": gpus}}}}
        return {**workflow("shared", namespace, pod), "kind": "WorkflowTemplate"}

    call = {"dag": {"tasks": [{"name": "t", "templateRef": {"name": "shared", "template": "main"}}]}}
    write("t.yaml", template("a", 1), template("b", 5))
    write("w.yaml", workflow("x", "b", call), workflow("y", "a", call), workflow("z", "c", call))
    x, y, z = (
        each for each in gpuflow("demand", "t.yaml", "w.yaml", "--format", "json").data if each["pipeline"] in "xyz"
    )
    assert [each["peak"][GPU]["value"] for each in (x, y, z)] == ["5", "1", None]
    assert "WorkflowTemplate shared, which was not given" in z["peak"][GPU]["because"]


def test_which_of_two_teams_templates_is_meant_is_unknown_where_nobody_says(folder: Path, gpuflow: Gpuflow) -> None:
    trees = [
        {**workflow("shared", name, {"container": {"image": "i"}}), "kind": "WorkflowTemplate"} for name in ("a", "b")
    ]
    call = {"dag": {"tasks": [{"name": "t", "templateRef": {"name": "shared", "template": "main"}}]}}
    write("w.yaml", *trees, workflow("x", None, call))
    unsaid = gpuflow("demand", "w.yaml", "--format", "json").data[-1]
    assert unsaid["peak"]["pods"]["bound"] == "unknown"
    write("w.yaml", trees[0], workflow("x", None, call))
    assert gpuflow("demand", "w.yaml", "--format", "json").data[-1]["peak"]["pods"]["value"] == "1"


def test_an_object_that_a_step_creates_elsewhere_is_judged_there(folder: Path, gpuflow: Gpuflow) -> None:
    def creates(namespace: str) -> Tree:
        manifest = emit_all([job("inner", namespace)])
        return {"resource": {"action": "create", "successCondition": "status.succeeded > 0", "manifest": manifest}}

    write("w.yaml", workflow("w", "a", creates("b")))
    answer = gpuflow("check", "w.yaml", *CHECK).data
    assert (answer["namespace"], answer["verdict"]) == ("a + b", "never")
    assert [(each["name"], each["verdict"]) for each in answer["scopes"]] == [("b/q", "never")]
    write("w.yaml", workflow("w", "b", creates("{{workflow.namespace}}")))
    assert gpuflow("check", "w.yaml", *CHECK).data["namespace"] == "b"
    write("w.yaml", workflow("w", "b", creates("a")))
    assert gpuflow("check", "w.yaml", *CHECK).data["verdict"] == "always"
    write("w.yaml", workflow("w", "a", creates("{{inputs.parameters.where}}")))
    assert gpuflow("check", "w.yaml", *CHECK).data["verdict"] == "unknown"


def test_compare_follows_a_document_to_its_new_namespace(folder: Path, gpuflow: Gpuflow) -> None:
    write("old.yaml", job("j", "a"), job("k", "a"), job("k", "b"))
    write("new.yaml", job("j", "b"), job("k", "b"))
    j, k = gpuflow("check", "new.yaml", *CHECK, "--compare", "old.yaml").data
    assert [j[side]["namespace"] for side in ("before", "after")] == ["a", "b"]
    assert [j[side]["verdict"] for side in ("before", "after")] == ["always", "never"]
    assert k["before"]["namespace"] == "b"
    shown = gpuflow("check", "new.yaml", "--cluster", "cluster.yaml", "--compare", "old.yaml").out
    assert "`j` in `b` (before: in `a`)" in shown


class TestTogether:
    """Quotas are added up within a namespace; nodes, ClusterQueues and cohorts over all of them."""

    def whole(self, gpuflow: Gpuflow, *words: str) -> Any:
        return gpuflow("check", "j.yaml", *CHECK, "--together", *words).data[-1]["together"]

    def test_quotas_of_two_namespaces_are_not_one(self, folder: Path, gpuflow: Gpuflow) -> None:
        write("cluster.yaml", *snapshot(quota("a", {GPU: "8"}), quota("b", {GPU: "8"})))
        write("j.yaml", job("j", "a", 8), job("j", "b", 8))
        whole = self.whole(gpuflow)
        assert (whole["verdict"], whole["namespace"], whole["pipeline"]) == ("always", "a + b", "a/j + b/j")
        assert [(each["name"], each["peak"]) for each in whole["scopes"]] == [("a/q", "8"), ("b/q", "8")]
        write("j.yaml", job("j", "a", 8), job("j", "b", 8), job("k", "a", 1))
        whole = self.whole(gpuflow)
        assert [each["verdict"] for each in whole["scopes"]] == ["may-queue", "always"]

    def test_nodes_are_shared(self, folder: Path, gpuflow: Gpuflow) -> None:
        quotas = quota("a", {GPU: "8"}), quota("b", {GPU: "8"})
        write("j.yaml", job("j", "a", 8), job("k", "b", 8))
        write("cluster.yaml", *snapshot(*quotas, node("n", 8), assumed=()))
        whole = self.whole(gpuflow)
        assert whole["verdict"] == "may-queue"
        assert [(each["kind"], each["peak"]) for each in whole["scopes"]][-1] == ("Nodes", "16")
        write("cluster.yaml", *snapshot(*quotas, node("n", 8), node("m", 8), assumed=()))
        assert self.whole(gpuflow)["verdict"] == "always"

    @pytest.mark.parametrize(("each", "verdict"), [(4, "may-queue"), (8, "always")])
    def test_a_cohort_is_shared(self, folder: Path, gpuflow: Gpuflow, each: int, verdict: str) -> None:
        queues = [cluster_queue(f"of-{name}", "all", each) for name in "ab"]
        homes = [of_kueue("LocalQueue", "q", {"clusterQueue": f"of-{name}"}, name) for name in "ab"]
        flavor = of_kueue("ResourceFlavor", "f", {})
        write("cluster.yaml", *snapshot(*queues, *homes, flavor, namespaces=("a", "b")))
        write("j.yaml", job("j", "a", 8, queue="q"), job("j", "b", 8, queue="q"))
        assert self.whole(gpuflow)["verdict"] == verdict

    def test_queues_of_the_same_name_are_each_namespaces_own(self, folder: Path, gpuflow: Gpuflow) -> None:
        queues = [cluster_queue("of-a", "x", 1), cluster_queue("of-b", "y", 8)]
        homes = [of_kueue("LocalQueue", "q", {"clusterQueue": f"of-{name}"}, name) for name in "ab"]
        flavor = of_kueue("ResourceFlavor", "f", {})
        write("cluster.yaml", *snapshot(*queues, *homes, flavor, namespaces=("a", "b")))
        write("j.yaml", job("small", "a", 1, queue="q"), job("large", "b", 8, queue="q"))
        assert self.whole(gpuflow)["verdict"] == "always"
        write("j.yaml", job("small", "b", 1, queue="q"), job("large", "a", 8, queue="q"))
        assert self.whole(gpuflow)["verdict"] == "never"

    def test_volumes_that_bind_pods_to_nodes_are_not_counted_together_and_that_is_said(
        self, folder: Path, gpuflow: Gpuflow
    ) -> None:
        bound = job("j", "a", 1)
        claim = {"name": "v", "persistentVolumeClaim": {"claimName": "c"}}
        bound["spec"]["template"]["spec"]["volumes"] = [claim]
        write("cluster.yaml", *snapshot(quota("a", {GPU: "8"}), node("n", 8), assumed=()))
        write("j.yaml", bound, job("k", "b", 1))
        whole = self.whole(gpuflow)
        assert whole["verdict"] == "unknown" and "GF535" in [each["code"] for each in whole["findings"]]

    def test_runs_of_several_engines_are_counted_each_for_its_own(self, folder: Path, gpuflow: Gpuflow) -> None:
        key = "count/workflows.argoproj.io"
        write("cluster.yaml", *snapshot(quota("a", {key: "2"})))
        pod = {"container": {"image": "i"}}
        write("j.yaml", job("j", "a", 0), workflow("w", "a", pod), workflow("x", "a", pod))
        Path("k.yaml").write_text(KFP)
        words = ("j.yaml", "k.yaml", "--site", "site.yaml", *CHECK, "--together")
        *alone, last = gpuflow("check", *words).data
        assert [each["engine"] for each in alone] == ["none", "argo", "argo", "kubeflow"]
        (line,) = [each for each in last["together"]["scopes"] if each["resource"] == key]
        assert (last["together"]["engine"], line["peak"], line["verdict"]) == ("argo + kubeflow", "3", "may-queue")


def test_a_live_cluster_is_read_for_every_namespace(
    folder: Path, gpuflow: Gpuflow, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    class Server:
        def __init__(self, *_: object) -> None: ...

        def get(self, path: str, _: object) -> Served:
            asked.append(path)
            if path == "/apis":
                return Served(200, {"groups": []})
            found = {f"/api/v1/namespaces/{name}/resourcequotas": quota(name, {GPU: most}) for name, most in QUOTAS}
            names = [{"metadata": {"name": name}} for name, _ in QUOTAS]
            return Served(
                200, {"items": names if path == "/api/v1/namespaces" else [found[path]] if path in found else []}
            )

    monkeypatch.setattr(live, "Reader", Server)
    write("j.yaml", job("j", "a", 0), job("k", "b"), job("l", "a", 0))
    answer = gpuflow("check", "j.yaml", "--cluster", "live", "--format", "json")
    quotas = [[scope["hard"] for scope in each["scopes"] if scope["kind"] == "ResourceQuota"] for each in answer.data]
    assert quotas == [[], ["0"], []]
    assert [asked.count(f"/api/v1/namespaces/{name}/resourcequotas") for name in "ab"] == [1, 1]


QUOTAS = (("a", "8"), ("b", "0"))


# Engines.


@pytest.fixture
def bare(folder: Path) -> None:
    """A quota that asks every container for its cpu, and no LimitRange that gives it."""
    write("cluster.yaml", *snapshot(quota("a", {"requests.cpu": "99"})))
    pod = {"container": {"image": "i", "resources": {"requests": {"cpu": 1}, "limits": {"cpu": 1}}}}
    write("w.yaml", workflow("w", "a", pod))
    Path("k.yaml").write_text(KFP)
    Path("p.yaml").write_text(PIPELINE)
    write("j.yaml", job("j", "a", 0))


@pytest.mark.usefixtures("bare")
def test_the_kind_says_the_engine(gpuflow: Gpuflow) -> None:
    reports = gpuflow("check", "w.yaml", "k.yaml", "p.yaml", "j.yaml", "--site", "site.yaml", *CHECK).data
    assert [each["engine"] for each in reports] == ["argo", "kubeflow", "none", "none"]
    assert [each["verdict"] for each in reports] == ["never", "never", "always", "always"]
    assert "must specify requests.cpu for: init,wait" in reports[0]["findings"][0]["kubernetes"]
    demands = gpuflow("demand", "w.yaml", "k.yaml", "p.yaml", "j.yaml", "--format", "json").data
    assert [each["engine"] for each in demands] == ["argo", "kubeflow", "none", "none"]


@pytest.mark.usefixtures("bare")
def test_kinds_of_one_file_run_each_on_its_own(gpuflow: Gpuflow) -> None:
    Path("mixed.yaml").write_text(f"{Path('w.yaml').read_text()}---\n{Path('j.yaml').read_text()}")
    reports = gpuflow("check", "mixed.yaml", *CHECK).data
    assert {each["kind"]: each["engine"] for each in reports} == {"Workflow": "argo", "Job": "none"}


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize(("file", "engine"), [("w.yaml", "argo"), ("k.yaml", "kubeflow")])
def test_none_counts_the_steps_own_pods_and_is_said(gpuflow: Gpuflow, file: str, engine: str) -> None:
    report = gpuflow("check", file, "--site", "site.yaml", *CHECK, "--engine", "none").data
    assert (report["engine"], report["verdict"]) == ("none", "always")
    (note,) = [each for each in report["findings"] if each["code"] == "GF747"]
    assert f"runs on {engine}" in note["message"]
    assert "GF747" in gpuflow("demand", file, "--engine", "none").err
    named = gpuflow("demand", file, "--engine", engine, "--format", "json").data
    assert named == gpuflow("demand", file, "--format", "json").data


@pytest.mark.usefixtures("bare")
def test_the_engine_of_another_tool_is_still_refused(gpuflow: Gpuflow) -> None:
    answer = gpuflow("demand", "w.yaml", "--engine", "kubeflow")
    assert answer.code == 2 and "GF704" in answer.err


# Python.


@pytest.mark.usefixtures("bare")
def test_python_follows_the_document() -> None:
    report = gpuflow.check("w.yaml", "cluster.yaml")
    assert (report.namespace, report.engine, report.verdict) == ("a", "argo", "never")
    assert gpuflow.check(job("j", "a", 0), "cluster.yaml", site="site.yaml").verdict == "always"
    asked = gpuflow.demand("w.yaml")
    assert (asked.namespace, asked.engine) == ("a", "argo")
    assert gpuflow.check(asked, "cluster.yaml").namespace == "a"
    assert gpuflow.demand("w.yaml", engine="none").engine == "none"
    assert gpuflow.demand("p.yaml").engine == "none"


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize("given", ["w.yaml", "demand"])
def test_python_refuses_a_contradiction(given: str) -> None:
    asked = gpuflow.demand("w.yaml") if given == "demand" else given
    with pytest.raises(GpuflowError) as refusal:
        gpuflow.check(asked, "cluster.yaml", namespace="b")
    (finding,) = refusal.value.findings
    assert finding.code == "GF745" and 'namespace= says "b"' in finding.message and finding.where.file == "w.yaml"
