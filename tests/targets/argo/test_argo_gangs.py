"""Gangs on Argo: a template whose pod looks after a JobSet.

Tests gpuflow/readers/gang_launcher.py and gpuflow/pod/launcher.py.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpuflow
from gpuflow.core.errors import GpuflowError
from gpuflow.demands import demand_of
from gpuflow.demands.model import PodSet
from gpuflow.kubernetes.expansion import expand
from gpuflow.plan import planned_step
from gpuflow.pod import Engine
from gpuflow.pod.build import made_pod
from gpuflow.pod.gang_kinds import SPELLINGS
from gpuflow.pod.later_attempts import changes_of
from gpuflow.readers.gang_launcher import later_in
from gpuflow.runtime.gangs import gang_command as launcher
from gpuflow.runtime.gangs import later_attempts
from gpuflow.runtime.gangs.attempt_object import Gang
from gpuflow.runtime.gangs.kinds import WORDS
from gpuflow.runtime.gangs.later_attempts import EarlierAttempts
from gpuflow.runtime.supervise import kube_client
from gpuflow.site import Site
from gpuflow.spec.canonical import meaning_of
from gpuflow.spec.loading import loads
from gpuflow.targets.argo import target
from gpuflow.targets.argo.single_step import standalone_template
from gpuflow.targets.argo.templates import sizes, step_template
from gpuflow.targets.target import Request, compile_with
from tests.gang_words import said
from tests.targets.argo.test_argo_read_back import peaks, read_back

SITE = Site.load("nvidia")
HEAD = "apiVersion: gpuflow/v1\nkind: Pipeline\nname: p\nsteps:\n  train:\n    image: i:1\n"
RANKS = "spec.replicatedJobs[0].template.spec.template.spec"


def _pipeline(text: str) -> Any:
    return loads((HEAD + "".join(f"    {line}\n" for line in text.splitlines())).encode())


def _words(template: dict[str, Any]) -> list[str]:
    """The launcher's command after Argo and its kubelet."""
    return [expand(word, {"GPUFLOW_BRACE": "{"}) for word in template["container"]["command"]]


def _jobset(words: list[str]) -> dict[str, Any]:
    """What the launcher makes of its command."""
    options = launcher.parse([word for word in words[2:] if not word.startswith("--run-id")] + ["--run-id=r"], {})
    return kube_client.manifest_from_text(options.manifest, "--manifest", options.set)


def _template(text: str) -> dict[str, Any]:
    return step_template(planned_step(_pipeline(text), "train", SITE), "train")[0]


def test_one_object_for_each_attempt_that_restarts_nothing_itself() -> None:
    template = _template(
        "gang: 4\ncommand: [run]\nqueue: research\nretry: {failures: 1, interruptions: 9}\ntimeout: 1h"
    )
    words = _words(template)
    jobset = _jobset(words)
    (job,) = jobset["spec"]["replicatedJobs"]
    spec = job["template"]["spec"]
    assert (spec["parallelism"], spec["completions"], spec["completionMode"]) == (4, 4, "Indexed")
    assert (spec["backoffLimit"], jobset["spec"]["failurePolicy"]["maxRestarts"]) == (0, 0)
    assert spec["activeDeadlineSeconds"] == 3600 + 3600 + 30
    assert {"--failures=1", "--interruptions=9", "--owner=controller"} <= set(words)
    # Kueue takes the object as a whole; the launcher does not wait in the queue of its own gang.
    assert jobset["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "research"
    assert jobset["spec"]["suspend"] is True
    assert not any(key.startswith("kueue") for key in spec["template"]["metadata"]["labels"])
    assert not any(key.startswith("kueue") for key in template["metadata"]["labels"])


def test_ranks_know_who_they_are_and_torchrun_needs_no_options() -> None:
    text = "gang: {workers: 2, rendezvous: {framework: torchrun, port: 29400}}\ncommand: [torchrun, t.py]\ngpu: l4 x 2"
    (job,) = _jobset(_words(_template(text)))["spec"]["replicatedJobs"]
    main = job["template"]["spec"]["template"]["spec"]["containers"][0]
    env = {entry["name"]: entry.get("value", entry.get("valueFrom")) for entry in main["env"]}
    assert (env["PET_NNODES"], env["PET_NPROC_PER_NODE"], env["PET_MASTER_PORT"]) == ("2", "2", "29400")
    assert env["GPUFLOW_RANK"] == env["PET_NODE_RANK"] and env["GPUFLOW_LEADER"] == env["PET_MASTER_ADDR"]
    assert main["command"][:1] == ["gpuflow-run"] and "--gang=2" in main["command"]
    assert "--gang-port=29401" in main["command"] and main["command"][-2:] == ["torchrun", "t.py"]


@given(st.text(st.sampled_from("a${}()\\\"'\n= é"), max_size=12))
def test_text_reaches_the_ranks_as_it_was_written(text: str) -> None:
    """Argo, the kubelet of the launcher, JSON, and the kubelet of the rank: none of them changes it."""
    pipeline = _pipeline(
        f"gang: 2\ncommand: [run, {{text: {json.dumps(text)}}}]\nenv: {{A: {{text: {json.dumps(text)}}}}}"
    )
    words = step_template(planned_step(pipeline, "train", SITE), "train")[0]["container"]["command"]
    assert not any(re.search(r"\{\{(?!workflow|inputs)", word) for word in words)
    main = _jobset(_words({"container": {"command": words}}))["spec"]["replicatedJobs"][0]["template"]["spec"][
        "template"
    ]["spec"]["containers"][0]
    assert expand(main["command"][-1], {}) == text
    assert expand(next(entry["value"] for entry in main["env"] if entry["name"] == "A"), {}) == text


def test_a_value_of_the_run_travels_as_a_word_of_its_own() -> None:
    text = HEAD.replace("steps:", "params: {lr: x}\nsteps:") + "    gang: 2\n    command: [run, {param: lr}]\n"
    words = step_template(planned_step(loads(text.encode()), "train", SITE), "train")[0]["container"]["command"]
    command = f"--set={RANKS}.containers[0].command"
    assert any(word.startswith(command) and word.endswith("={{inputs.parameters.lr}}") for word in words)
    manifest = next(word for word in words if word.startswith("--manifest="))
    assert "{{" not in manifest and json.loads(manifest.partition("=")[2])


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("gang: 2\ncache: true", "cache"),
        ("gang: 2\nenv: {N: {run: attempt}}", "env"),
    ],
)
def test_what_a_gang_cannot_have_is_refused_by_name(text: str, field: str) -> None:
    with pytest.raises(GpuflowError) as refusal:
        compile_with(target, Request(_pipeline(f"{text}\ncommand: [run]"), SITE, None, "p.yaml"), allow_lossy=False)
    (found,) = [finding for finding in refusal.value.findings if finding.code == "GF378"]
    assert found.hint and field.split(".")[0] in HEAD + text


LED = (
    "gang: {workers: 3, leader: {gpu: null, memory: 4Gi, command: [lead, {param: lr}], env: {ROLE: {param: lr}}}}\n"
    "command: [run, {param: lr}]\ngpu: l4\nmemory: 8Gi\nspot: {mode: require, fallback_after: 2}\n"
    "retry: {failures: 3, interruptions: 5, other_node: true, more_memory: {factor: 1.5, max: 20Gi}}"
)


def _led() -> Any:
    return loads((HEAD + "".join(f"    {line}\n" for line in LED.splitlines()) + "params: {lr: x}\n").encode())


def test_a_leader_is_a_second_job_whose_values_reach_it_too() -> None:
    site = Site.model_validate({**Site.load("gke").model_dump(), "engines": {"argo": {"service_account": "wf"}}})
    words = _words(step_template(planned_step(_led(), "train", site), "train")[0])
    jobset = _jobset(words)
    leader, workers = (job["template"]["spec"]["template"]["spec"] for job in jobset["spec"]["replicatedJobs"])
    value = "{{inputs.parameters.lr}}"
    assert leader["containers"][0]["command"][-2:] == ["lead", value]
    assert {"name": "ROLE", "value": value} in leader["containers"][0]["env"]
    assert workers["containers"][0]["command"][-2:] == ["run", value]
    assert "--rank-offset=1" in workers["containers"][0]["command"]
    assert [spec["serviceAccountName"] for spec in (leader, workers)] == ["wf", "wf"]
    compile_with(target, Request(_led(), site, None, "p.yaml"), allow_lossy=False)


def test_the_leader_has_later_attempts_of_its_own() -> None:
    pipeline, site = meaning_of(_led()), meaning_of(Site.load("gke"))
    words = _words(step_template(planned_step(pipeline, "train", site), "train")[0])
    options = launcher.parse([word for word in words[2:] if not word.startswith("--run-id")] + ["--run-id=r"], {})
    gang = Gang(_jobset(words), options, None)
    gang.changes = later_attempts.changes_of(options)
    places = {True: RANKS, False: RANKS.replace("[0]", "[1]")}
    for before in (EarlierAttempts(1), EarlierAttempts(interruptions=2), EarlierAttempts(2, 5, ("a", "b"))):
        for leads, place in places.items():
            first = kube_client.object_state.value_at(gang.body(1, 0, 0, EarlierAttempts()), place)
            made = kube_client.object_state.value_at(gang.body(7, 3, before.interruptions, before), place)
            assert (
                made
                == changes_of(made_pod(planned_step(pipeline, "train", site), None, Engine(leads=leads))).spec(
                    first, before
                )
                != first
            )


@pytest.mark.parametrize("engine", ["none", "argo"])
def test_a_compiled_leader_asks_for_the_same_now_and_later(engine: str) -> None:
    site = Site.load("gke")
    back, own = read_back(_led(), site, engine), demand_of(_led(), site, engine)
    assert back is not None and peaks(back) == peaks(own)
    assert [each.when for each in back.later] == [each.when for each in own.later] and len(own.later) == 2
    for theirs, ours in zip(back.later, own.later, strict=True):
        assert peaks(back.at_later(theirs)) == peaks(own.at_later(ours))


def test_a_pytorchjob_with_a_leader_is_refused_by_name() -> None:
    site = Site.model_validate({**SITE.model_dump(), "gangs": {"kind": "pytorchjob"}})
    pipeline = _pipeline("gang: {workers: 2, leader: true}\ncommand: [run]")
    with pytest.raises(GpuflowError) as refusal:
        compile_with(target, Request(pipeline, site, None, "p.yaml"), allow_lossy=False)
    (found,) = [finding for finding in refusal.value.findings if finding.code == "GF378"]
    assert "init container" in found.message and "gangs.kind: jobset" in (found.hint or "") and found.where.line == 7


LATER = (
    "gang: 2\ncommand: [run]\ngpu: l4\nmemory: 8Gi\nspot: {mode: require, fallback_after: 2}\n"
    "retry: {failures: 3, interruptions: 5, other_node: true, more_memory: {factor: 1.5, max: 20Gi}}"
)


def test_the_launcher_makes_the_same_later_attempts_as_for_one_pod() -> None:
    pipeline, site = meaning_of(_pipeline(LATER)), meaning_of(Site.load("gke"))
    words = _words(step_template(planned_step(pipeline, "train", site), "train")[0])
    options = launcher.parse([word for word in words[2:] if not word.startswith("--run-id")] + ["--run-id=r"], {})
    gang = Gang(_jobset(words), options, None)
    gang.changes = later_attempts.changes_of(options)
    first = kube_client.object_state.value_at(gang.body(1, 0, 0, EarlierAttempts()), RANKS)
    for before in (
        EarlierAttempts(1),
        EarlierAttempts(9),
        EarlierAttempts(interruptions=2),
        EarlierAttempts(2, 5, ("a", "b")),
    ):
        made = kube_client.object_state.value_at(gang.body(7, 3, before.interruptions, before), RANKS)
        expected = changes_of(made_pod(planned_step(pipeline, "train", site))).spec(first, before)
        assert made == expected != first
    assert kube_client.object_state.value_at(gang.body(2, 0, 1, EarlierAttempts(interruptions=1)), RANKS) == first


def test_what_argo_does_only_in_part_is_no_matter_of_a_gang() -> None:
    found = " ".join(finding.message for finding in target.notes(Request(_pipeline(LATER), Site.load("gke"), None, "")))
    assert "fallback_after counts every retry" not in found
    done = compile_with(target, Request(_pipeline(LATER), Site.load("gke"), None, "p.yaml"), allow_lossy=False)
    assert "WEAKER" not in done.text and "asInt(retries)" not in done.text
    alone = _pipeline(LATER.replace("gang: 2\n", ""))
    said = " ".join(finding.message for finding in target.notes(Request(alone, Site.load("gke"), None, "")))
    assert "fallback_after counts every retry" in said


@pytest.mark.parametrize("engine", ["none", "argo", "airflow", "kubeflow"])
def test_later_attempts_of_a_gang_are_demanded_and_its_launcher_is_as_it_was(engine: str) -> None:
    demand = demand_of(_pipeline(LATER), Site.load("gke"), engine)
    assert not demand.refusals
    (step,) = demand.steps
    assert step.nodes_avoided == 3, "one node for each failure, whatever the engine does with its own pods"
    later = {each.when: {one.name: one for one in each.pod_sets["train"]} for each in demand.later}
    grown, moved = later["after running out of memory"], later["after losing spot nodes"]
    assert grown["worker"].pod["spec"]["containers"][0]["resources"]["requests"]["memory"] == "20Gi"
    assert (grown["worker"].count, moved["worker"].count) == (2, 2)
    tolerated = [entry["key"] for entry in moved["worker"].pod["spec"]["tolerations"]]
    assert tolerated == ["nvidia.com/gpu"], "off spot nodes"
    own = {one.name: one for one in step.pod_sets}
    assert grown.get("launcher") == moved.get("launcher") == own.get("launcher")
    assert ("launcher" in own) == (engine in ("argo", "kubeflow"))


def test_the_compiled_workflow_asks_for_the_same_later_attempts() -> None:
    site = Site.load("gke")
    back, own = read_back(_pipeline(LATER), site, "argo"), demand_of(_pipeline(LATER), site, "argo")
    assert back is not None
    assert [each.when for each in back.later] == [each.when for each in own.later] and len(own.later) == 2
    for theirs, ours in zip(back.later, own.later, strict=True):
        assert peaks(back.at_later(theirs)) == peaks(own.at_later(ours))
    assert max(step.nodes_avoided for step in back.steps) == 3


@pytest.mark.parametrize("leads", [False, True])
@pytest.mark.parametrize("word", SPELLINGS)
def test_a_compiled_gang_of_every_kind_asks_for_the_same_now_and_later(word: str, leads: bool) -> None:
    if (2 if leads else 1) not in WORDS[word].sets:
        return  # refused, as another test says
    leader = "{gpu: null, memory: 2Gi}" if leads else "null"
    text = LATER.replace("gang: 2\n", f"gang: {{workers: 3, leader: {leader}}}\nqueue: research\n")
    site = Site.model_validate({**Site.load("gke").model_dump(), "gangs": said(word)})
    back, own = read_back(_pipeline(text), site, "argo"), demand_of(_pipeline(text), site, "argo")
    assert back is not None and peaks(back) == peaks(own)
    assert str(own.peak["pods"].value) == ("5" if leads else "4")
    queues = [[each.because for each in demand.unseen if each.is_placement] for demand in (back, own)]
    assert queues[0] == queues[1] and bool(queues[0]) is ("volcano" in word)
    assert [each.when for each in back.later] == [each.when for each in own.later] and len(own.later) == 2
    for theirs, ours in zip(back.later, own.later, strict=True):
        assert peaks(back.at_later(theirs)) == peaks(own.at_later(ours))


def test_the_pod_that_looks_after_it_is_part_of_the_demand() -> None:
    demand = demand_of(_pipeline("gang: 4\ncommand: [run]\ncpu: 2\nmemory: 1Gi"), SITE, "argo")
    assert str(demand.peak["pods"].value) == "5"
    assert str(demand.overhead["pods"].value) == "1"
    assert str(demand_of(_pipeline("gang: 4\ncommand: [run]"), SITE).peak["pods"].value) == "4"


def test_the_example_compiles_on_its_site() -> None:
    folder = Path(__file__).resolve().parents[3] / "docs" / "examples" / "multi-node"
    text = gpuflow.compile(folder / "pretrain.yaml", target="argo", site=folder / "site.yaml").text
    assert "--interruptions=20" in text and "serviceAccountName: gpuflow-gang" in text
    assert '"automountServiceAccountToken": false' in text, "only the launcher has a token"


def test_the_example_with_mpi_compiles_on_its_site() -> None:
    folder = Path(__file__).resolve().parents[3] / "docs" / "examples" / "multi-node"
    text = gpuflow.compile(folder / "mpi.yaml", target="argo", site=folder / "site.yaml").text
    assert '"--mpi=8"' in text and '"mpirun"' in text


def test_the_example_with_a_leader_compiles_on_its_site() -> None:
    folder = Path(__file__).resolve().parents[3] / "docs" / "examples" / "multi-node"
    text = gpuflow.compile(folder / "coordinator.yaml", target="argo", site=folder / "site.yaml").text
    assert '"coordinator.py"' in text and '"worker.py"' in text and "--set=spec.replicatedJobs[0]" in text


def test_ranks_have_the_account_that_argos_pods_have() -> None:
    executor = {"service_account": "exec", "token_secret": "t"}
    engine = {"service_account": "wf", "executor": executor}
    site = Site.model_validate({"name": "s", "engines": {"argo": engine}})
    template = step_template(planned_step(_pipeline("gang: 2\ncommand: [run]"), "train", site), "train")[0]
    ranks = _jobset(_words(template))["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    assert (ranks["serviceAccountName"], ranks["automountServiceAccountToken"]) == ("wf", False)
    assert template["automountServiceAccountToken"] is True


@pytest.mark.parametrize(
    ("engine", "own", "said"),
    [
        ({"service_account": "gang"}, "", True),
        ({"service_account": "other"}, "", False),
        ({"service_account": "other"}, "\nservice_account: gang", True),
        ({"service_account": "gang", "executor": {"service_account": "e", "token_secret": "t"}}, "", False),
    ],
)
def test_a_program_that_holds_its_launchers_token_is_told(engine: dict[str, Any], own: str, said: bool) -> None:
    site = Site.model_validate({"name": "s", "gangs": {"service_account": "gang"}, "engines": {"argo": engine}})
    found = target.notes(Request(_pipeline(f"gang: 2\ncommand: [run]{own}"), site, None, ""))
    assert ("GF380" in {finding.code for finding in found}) == said


def test_a_semaphore_counts_the_gpus_of_all_ranks() -> None:
    (size,) = sizes(_pipeline("gang: 2\ncommand: [run]\ngpu: l4 x 4").effective("train"), SITE)
    assert size.count == 8
    (size,) = sizes(_led().effective("train"), SITE)
    assert size.count == 3, "the leader has none"


def test_the_launcher_limits_the_wait_for_its_ranks_which_argo_cannot() -> None:
    pipeline = _pipeline("gang: 2\ncommand: [run]\nqueue_timeout: 1h")
    done = compile_with(target, Request(pipeline, SITE, None, "p.yaml"), allow_lossy=False)
    assert "--queue-timeout=1h" in done.text
    alone = _pipeline("command: [run]\nqueue_timeout: 1h")
    with pytest.raises(GpuflowError, match="queue_timeout"):
        compile_with(target, Request(alone, SITE, None, "p.yaml"), allow_lossy=False)


def test_a_template_of_its_own_refuses_the_same() -> None:
    step = _pipeline("gang: 2\ncache: true\ncommand: [run]").effective("train")
    with pytest.raises(GpuflowError, match="GF378"):
        standalone_template(step, SITE, "train")


def test_under_mpi_every_rank_says_how_many_processes_it_takes() -> None:
    mpi = "rendezvous: {framework: mpi}"
    gang = f"gang: {{workers: 3, leader: {{gpu: null}}, {mpi}}}\ncommand: [mpirun, train]\ngpu: l4 x 2"
    jobset = _jobset(_words(_template(gang)))
    leader, workers = (job["template"]["spec"]["template"]["spec"] for job in jobset["spec"]["replicatedJobs"])
    assert [word for word in leader["containers"][0]["command"] if word.startswith("--mpi")] == ["--mpi=0"]
    assert [word for word in workers["containers"][0]["command"] if word.startswith("--mpi")] == ["--mpi=2"]
    done = compile_with(target, Request(_pipeline(gang), SITE, None, "p.yaml"), allow_lossy=False)
    assert "--mpi=2" in done.text


def test_ranks_are_placed_by_the_ranks_of_their_own_gang() -> None:
    words = _words(_template("gang: 2\ncommand: [run]\ntopology: {same: node}"))
    options = launcher.parse([word for word in words[2:] if not word.startswith("--run-id")] + ["--run-id=r"], {})
    body = Gang(_jobset(words), options, None).body(1, 0, 0)
    template = body["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    ((term,),) = template["spec"]["affinity"]["podAffinity"].values()
    chosen = term["labelSelector"]["matchLabels"]
    assert list(chosen) == ["gpuflow.dev/gang"]
    assert chosen.items() <= template["metadata"]["labels"].items()


@pytest.mark.parametrize("sharded", [True, False])
def test_the_ranks_keep_their_parts_when_the_checkpoint_says_so(sharded: bool) -> None:
    kept = f"checkpoint: {{path: /c, store: 's3://b/x', sharded: {str(sharded).lower()}}}"
    jobset = _jobset(_words(_template(f"gang: 4\ncommand: [run]\n{kept}")))
    (container,) = kube_client.object_state.value_at(jobset, RANKS)["containers"]
    assert ("--sharded" in container["command"]) == sharded


def test_parts_without_a_gang_are_refused() -> None:
    with pytest.raises(GpuflowError, match=r"checkpoint\.sharded is for a gang") as refusal:
        _pipeline("command: [run]\ncheckpoint: {path: /c, store: 's3://b/x', sharded: true}")
    assert [finding.code for finding in refusal.value.findings] == ["GF166"]


@pytest.mark.parametrize(
    ("more", "memory", "later"),
    [
        ("--more-memory=1.0000001:64Gi --failures=999999999", "1Gi", 1),
        ("--more-memory=2:64Gi --failures=1", "many", 0),
        ("--more-memory=many --failures=1", "1Gi", 0),
        ("--more-memory=2:64Gi --failures=0", "1Gi", 0),
    ],
)
def test_a_launcher_that_somebody_wrote_is_read_without_trouble(more: str, memory: str, later: int) -> None:
    words = ["gpuflow-run", "gang", "--manifest={}", "--run-id=r", *more.split()]
    pod = {"metadata": {}, "spec": {"containers": [{"name": "main", "resources": {"limits": {"memory": memory}}}]}}
    assert len(list(later_in(words, [PodSet("worker", 2, pod)]))) == later
