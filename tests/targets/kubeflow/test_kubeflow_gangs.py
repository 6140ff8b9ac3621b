"""Gangs on Kubeflow: a task whose pod looks after a JobSet. Text passes two kubelets, JSON, and the rank's kubelet."""

from __future__ import annotations

import json
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, assume, given, settings

import gpuflow
from gpuflow import kubeflow
from gpuflow.cli.main import main
from gpuflow.core.errors import GpuflowError
from gpuflow.demands import demand_of
from gpuflow.readers import Options, foreign_in, read_documents
from gpuflow.runtime.gangs import gang_command as launcher
from gpuflow.runtime.gangs.kinds import WORDS
from gpuflow.runtime.gangs.later_attempts import changes_of
from gpuflow.runtime.supervise import kube_client
from gpuflow.site import Site
from gpuflow.spec.loading import loads
from gpuflow.targets.kubeflow import target
from gpuflow.targets.target import Request, compile_with, findings_of
from tests.gang_words import said
from tests.targets.kubeflow.compiling import HEAD, compiled, documents
from tests.targets.kubeflow.driver_model import driver_pods
from tests.targets.kubeflow.kubelets import kubelet, started
from tests.targets.kubeflow.test_both_kubelets import TEXT, is_for_the_launcher

MANY = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
SITE = Site.load("nvidia")


def _source(**step: Any) -> str:
    fields = {"image": "i:1", "command": ["run"], "gang": 2, **step}
    said = {name: value for name, value in fields.items() if value is not None}
    document = {"name": "p", "params": {"lr": "x"}, "steps": {"train": said}}
    return "".join(f"{key}: {json.dumps(value)}\n" for key, value in document.items())


def _launcher(source: str, **options: Any) -> tuple[dict[str, Any], list[str]]:
    """The launcher's pod as KFP's driver makes it, and the words that its kubelet starts it with."""
    spec, platform, *_ = [*documents(source, **options), {}]
    pod: dict[str, Any] = driver_pods(spec, platform)["exec-train"]
    return pod, started(pod["containers"][0])[0]


def _jobset(words: list[str]) -> dict[str, Any]:
    """What the launcher makes of its words."""
    at = words.index("gang")
    own = [word for word in words[at + 1 :] if not word.startswith(("--run-id", "--deliver"))]
    given_options = launcher.parse([*own, "--run-id=r"], {})
    return kube_client.manifest_from_text(given_options.manifest, "--manifest", given_options.set)


def _rank(words: list[str]) -> dict[str, Any]:
    (job,) = _jobset(words)["spec"]["replicatedJobs"]
    template: dict[str, Any] = job["template"]["spec"]["template"]
    return template


def _notes(source: str, site: Site = SITE) -> dict[str, str]:
    request = Request(loads(HEAD + source), site, None, "p.yaml")
    done = compile_with(target, request, allow_lossy=False)
    return {found.code: found.message for found in findings_of(target, request, done)}


def test_the_tasks_pod_is_the_launcher_and_owns_the_gang() -> None:
    source = _source(retry={"failures": 1, "interruptions": 9}, queue="research", queue_timeout="2h", timeout="1h")
    pod, words = _launcher(source)
    assert {"--owner=pod", "--engine=kubeflow", "--failures=1", "--interruptions=9", "--queue-timeout=2h"} <= set(words)
    jobset = _jobset(words)
    assert jobset["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "research" and jobset["spec"]["suspend"] is True
    main = pod["containers"][0]
    assert "nvidia.com/gpu" not in json.dumps(main["resources"])
    assert any(entry["name"] == "GPUFLOW_POD_NAME" for entry in main["env"])
    (spec, platform) = documents(source)
    # Who counts is the launcher; KFP is asked neither for a second pod nor for an earlier result.
    task = spec["root"]["dag"]["tasks"]["train"]
    assert "retryPolicy" not in task and not task["cachingOptions"]
    labels = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]["exec-train"]["podMetadata"]["labels"]
    assert not any(key.startswith("kueue") for key in labels), "it does not wait in its own gang's queue"


@MANY
@given(TEXT, TEXT)
def test_text_reaches_the_ranks_as_it_was_written(word: str, value: str) -> None:
    assume(not is_for_the_launcher(word) and not is_for_the_launcher(value))
    source = _source(command=["run", {"text": word}], env={"A": {"text": value}}, working_dir="/a$$b")
    text = compiled(source)
    assert not re.search(r"\{\{(?!\$\.)", text.partition("components:")[2])
    _, words = _launcher(source)
    main = _rank(words)["spec"]["containers"][0]
    assert kubelet(main["command"][-1], {"A": "not this"}) == word
    assert kubelet(next(entry["value"] for entry in main["env"] if entry["name"] == "A"), {}) == value
    assert main["workingDir"] == "/a$$b"


def test_what_kfps_launcher_would_read_as_its_own_is_refused_also_in_a_variable() -> None:
    for step in ({"command": ["run", "{{$.inputs}}"]}, {"env": {"A": "{{$}}"}}):
        with pytest.raises(GpuflowError, match="placeholder"):
            compiled(_source(**step))


def test_a_value_of_the_run_travels_as_a_word_of_its_own() -> None:
    _, words = _launcher(_source(command=["run", {"param": "lr"}]))
    value = "<lr>"  # which the model of the driver fills in
    assert any(word.startswith("--set=spec.replicatedJobs[0]") and word.endswith(f"={value}") for word in words)
    (manifest,) = [word for word in words if word.startswith("--manifest=")]
    assert "{{" not in manifest and json.loads(manifest.partition("=")[2])
    assert _rank(words)["spec"]["containers"][0]["command"][-1] == value


def test_outputs_are_put_where_kfp_looks() -> None:
    spec, _ = documents(_source(outputs={"loss": "float"}))
    command = spec["deploymentSpec"]["executors"]["exec-train"]["container"]["command"]
    assert "--deliver=loss={{$.outputs.parameters['loss'].output_file}}" in command
    assert "--output=loss:float" in command
    assert spec["components"]["comp-train"]["outputDefinitions"]["parameters"] == {
        "loss": {"parameterType": "NUMBER_DOUBLE"}
    }


def test_ranks_can_have_what_kfp_cannot_say_of_a_pod() -> None:
    """They are no pods of KFP's. The same fields of a single pod are refused."""
    step: dict[str, Any] = {
        "security": {"add_capabilities": ["IPC_LOCK"]},
        "kubernetes": {"resources": {"rdma/hca": 1}, "host_network": True, "scheduler": "other"},
        "termination_grace": "5m",
        "env_from": [{"secret": "wandb"}],
        "volumes": {"/data": {"claim": "data", "read_only": True}},
        "topology": {"same": "node"},
        "priority": {"pod": "high"},
    }
    template = _rank(_launcher(_source(**step))[1])
    spec, main = template["spec"], template["spec"]["containers"][0]
    assert main["securityContext"]["capabilities"]["add"] == ["IPC_LOCK"]
    assert main["resources"]["limits"]["rdma/hca"] == "1" and main["envFrom"]
    assert (spec["hostNetwork"], spec["schedulerName"], spec["priorityClassName"]) == (True, "other", "high")
    assert spec["terminationGracePeriodSeconds"] == 300 and "podAffinity" in spec["affinity"]
    with pytest.raises(GpuflowError, match="kubeflow does not support"):
        compiled(_source(**{**step, "gang": None}))


@pytest.mark.parametrize(
    ("step", "words"),
    [
        ({"cache": True}, "launcher|looks after"),
        ({"outputs": {"model": {"type": "directory", "kind": "model", "uri": "s3://b/m"}}}, "rank 0"),
    ],
)
def test_what_a_gang_cannot_have_is_refused_by_name(step: dict[str, Any], words: str) -> None:
    with pytest.raises(GpuflowError) as refusal:
        compiled(_source(**step), lossy=True)
    (found,) = [finding for finding in refusal.value.findings if finding.code == "GF378"]
    assert re.search(words, found.message) and found.hint


def test_copies_of_a_sub_pipeline_would_share_one_gang() -> None:
    inner = "{name: inner, steps: {train: {image: i:1, command: [run], gang: 2}}}"
    outer = f"name: p\nsteps:\n  each:\n    for_each: {{n: [1, 2]}}\n    pipeline: {inner}\n"
    with pytest.raises(GpuflowError, match="would share one gang"):
        compiled(outer)
    assert compiled(outer.replace("    for_each: {n: [1, 2]}\n", ""))
    _, words = _launcher(_source(for_each={"n": [1, 2]}))
    assert any(word.startswith("--item=n=") for word in words), "a gang of its own for each item"


def test_later_attempts_may_differ_in_a_gang_and_kfp_has_no_part_in_it(tmp_path: Path) -> None:
    step = {
        "memory": "8Gi",
        "gpu": "l4",
        "spot": {"mode": "prefer", "fallback_after": 2},
        "retry": {"failures": 1, "interruptions": 3, "other_node": True, "more_memory": {"factor": 2, "max": "20Gi"}},
    }
    _, words = _launcher(_source(**step), site=Site.load("gke"))
    at = words.index("gang")
    own = [word for word in words[at + 1 :] if not word.startswith(("--run-id", "--deliver"))]
    changes = changes_of(launcher.parse([*own, "--run-id=r"], {}))
    assert (Fraction(changes.factor or 0), changes.most, changes.other_node) == (2, "20Gi", True)
    assert changes.fallback_after == 2 and changes.on_demand.keys() <= {"affinity", "nodeSelector", "tolerations"}
    spot = _rank(words)["spec"]["tolerations"]
    file = tmp_path / "p.yaml"
    file.write_text(compiled(_source(**step), site=Site.load("gke")))
    read = foreign_in(read_documents(file))[0][0].demand(Options(Site.load("gke"), "kubeflow"))
    own = demand_of(loads(HEAD + _source(**step)), Site.load("gke"), "kubeflow")
    assert [each.when for each in read.later] == [each.when for each in own.later] and len(own.later) == 2
    for theirs, ours in zip(read.later, own.later, strict=True):
        found = [{key: str(peak.value) for key, peak in demand.peak.items()}
                 for demand in (read.at_later(theirs), own.at_later(ours))]  # fmt: skip
        assert found[0] == found[1]
    assert changes.on_demand["tolerations"] == [entry for entry in spot if "spot" not in entry["key"]] != spot
    with pytest.raises(GpuflowError, match=r"kubeflow does not support retry\.more_memory"):
        compiled(_source(**{**step, "gang": None}))


LED: dict[str, Any] = {
    "gang": {"workers": 3, "leader": {"gpu": None, "memory": "4Gi", "command": ["lead", {"param": "lr"}]}},
    "gpu": "l4 x 2",
    "memory": "8Gi",
    "spot": {"mode": "require", "fallback_after": 2},
    "retry": {"failures": 1, "interruptions": 3, "more_memory": {"factor": 2, "max": "20Gi"}},
}


def test_a_leader_is_a_second_job_of_the_gang() -> None:
    _, words = _launcher(_source(**LED), site=Site.load("gke"))
    leader, workers = (
        job["template"]["spec"]["template"]["spec"]["containers"][0] for job in _jobset(words)["spec"]["replicatedJobs"]
    )
    assert leader["command"][-2:] == ["lead", "<lr>"] and "nvidia.com/gpu" not in leader["resources"]["limits"]
    assert workers["resources"]["limits"]["nvidia.com/gpu"] == "2" and "--rank-offset=1" in workers["command"]
    assert any(word.startswith("--leader-on-demand=") for word in words)


def test_under_mpi_a_leader_without_a_gpu_starts_processes_in_the_workers_alone() -> None:
    gang = {"workers": 3, "leader": {"gpu": None}, "rendezvous": {"framework": "mpi"}}
    _, words = _launcher(_source(gang=gang, gpu="l4 x 2", command=["mpirun", "train"]))
    jobs = [job["template"]["spec"]["template"]["spec"] for job in _jobset(words)["spec"]["replicatedJobs"]]
    found = [[word for word in job["containers"][0]["command"] if word.startswith("--mpi")] for job in jobs]
    assert found == [["--mpi=0"], ["--mpi=2"]]


@pytest.mark.parametrize("engine", ["none", "kubeflow"])
def test_a_compiled_leader_asks_for_the_same_now_and_later(engine: str, tmp_path: Path) -> None:
    site, file = Site.load("gke"), tmp_path / "p.yaml"
    file.write_text(compiled(_source(**LED), site=site))
    read = foreign_in(read_documents(file))[0][0].demand(Options(site, engine))
    own = demand_of(loads(HEAD + _source(**LED)), site, engine)
    assert [each.when for each in read.later] == [each.when for each in own.later] and len(own.later) == 2
    pairs = [(read, own)]
    pairs += [(read.at_later(a), own.at_later(b)) for a, b in zip(read.later, own.later, strict=True)]
    for theirs, ours in pairs:
        found = [{key: str(peak.value) for key, peak in demand.peak.items()} for demand in (theirs, ours)]
        assert found[0] == found[1] and found[0]["requests.nvidia.com/gpu"] == "6"


@pytest.mark.parametrize("word", [word for word in WORDS if 2 in WORDS[word].sets])
def test_a_compiled_leader_of_every_kind_asks_for_the_same(word: str, tmp_path: Path) -> None:
    site, file = Site.model_validate({**Site.load("gke").model_dump(), "gangs": said(word)}), tmp_path / "p.yaml"
    file.write_text(compiled(_source(**LED), site=site))
    read = foreign_in(read_documents(file))[0][0].demand(Options(site, "kubeflow"))
    own = demand_of(loads(HEAD + _source(**LED)), site, "kubeflow")
    found = [{key: str(peak.value) for key, peak in demand.peak.items()} for demand in (read, own)]
    assert found[0] == found[1] and found[0]["requests.nvidia.com/gpu"] == "6"
    queues = [[each.because for each in demand.unseen if each.is_placement] for demand in (read, own)]
    assert queues[0] == queues[1] and bool(queues[0]) is ("volcano" in word)


def test_a_hand_written_pipeline_has_no_gang() -> None:
    step = gpuflow.Step(image="i:1", command=["run"], gang=2)
    with pytest.raises(GpuflowError, match="GF378"):
        kubeflow.component(step, name="train")


def test_it_is_said_that_a_lost_launcher_takes_its_gang_with_it() -> None:
    assert "takes its gang with it" in _notes(_source())["GF305"]
    assert "# WEAKER: gang:" in compiled(_source())
    said = _notes(_source(retry={"failures": 1, "interruptions": 2}))
    assert not {"GF391", "GF392", "GF393", "GF394"} & said.keys(), "both budgets are the launcher's"


def test_who_may_create_gangs_is_said(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert '"pipeline-runner"' in _notes(_source())["GF389"]
    named = {"name": "s", "engines": {"kubeflow": {"service_account": "team"}}, "gangs": {"service_account": "other"}}
    said = _notes(_source(), Site.model_validate(named))["GF389"]
    assert '"team"' in said and '"other", is for other engines' in said
    ranks = _rank(_launcher(_source(), site=Site.model_validate(named))[1])["spec"]
    assert ranks["serviceAccountName"] == "team"
    own = _rank(_launcher(_source(service_account="mine"), site=Site.model_validate(named))[1])["spec"]
    assert own["serviceAccountName"] == "mine"
    site = tmp_path / "site.yaml"
    site.write_text("apiVersion: gpuflow/v1\nkind: Site\n" + yaml.safe_dump(named))
    assert main(["site", "gang", str(site), "--engine", "kubeflow", "--namespace", "ml"]) == 0
    role, binding = yaml.safe_load_all(capsys.readouterr().out)
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "team", "namespace": "ml"}]
    assert any(rule["resources"] == ["jobsets"] for rule in role["rules"])


@pytest.mark.parametrize("engine", ["none", "kubeflow"])
def test_the_compiled_file_asks_for_what_its_source_asks_for(engine: str, tmp_path: Path) -> None:
    source = _source(gang=4, cpu=2, memory="1Gi", gpu="l4 x 2", queue="research", outputs={"loss": "float"})
    file = tmp_path / "p.yaml"
    file.write_text(compiled(source))
    (foreign,) = foreign_in(read_documents(file))[0]
    read = foreign.demand(Options(SITE, engine))
    own = demand_of(loads(HEAD + source), SITE, engine)
    assert {key: str(peak.value) for key, peak in read.peak.items()} == {
        key: str(peak.value) for key, peak in own.peak.items()
    }
    assert str(read.peak["pods"].value) == ("4" if engine == "none" else "5")
    assert str(read.peak["requests.nvidia.com/gpu"].value) == "8"


def test_a_compiled_gang_in_a_queue_is_not_said_to_be_admitted_pod_by_pod(tmp_path: Path) -> None:
    site, file = Site.load("gke"), tmp_path / "p.yaml"
    file.write_text(compiled(_source(gpu="l4", queue="q"), site=site))
    read = foreign_in(read_documents(file))[0][0].demand(Options(site, "kubeflow"))
    assert read.source is not None and any("kueue.x-k8s.io/queue-name" in str(each.pod) for each in read.steps)
    assert "GF774" not in [each.code for each in read.source.warnings()]
