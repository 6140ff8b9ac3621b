"""One table of pipelines through every target: the same pod, the same refusals, and losses said alike.

Runs in each environment for the targets whose SDK is there; Airflow's needs none. What a target does not support is
marked as its table marks it (not yet, upstream, never), and a mark that no longer holds is an error.

Tests gpuflow/targets/target.py.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuflow.core.errors import GpuflowError
from gpuflow.engines import ENGINES
from gpuflow.pod import Engine, pod_for
from gpuflow.runtime import bundle
from gpuflow.site import Site
from gpuflow.spec.canonical import meaning_of
from gpuflow.spec.loading import loads
from gpuflow.spec.pipeline import Pipeline
from gpuflow.targets import load_target
from gpuflow.targets.capabilities import REQUIRED_CONSTRUCTS, NoSupport, PartialSupport
from gpuflow.targets.constructs import POD, VOCABULARY, uses
from gpuflow.targets.target import Request, compile_with, findings_of
from tests.cli.commands import Gpuflow
from tests.targets.every_construct import HEAD, PIPELINES, SITE
from tests.test_plan import Counted

SDKS = {"argo": "hera", "kubeflow": "kfp"}
HERE = [name for name in ENGINES if name not in SDKS or importlib.util.find_spec(SDKS[name])]
"""The targets that this environment can compile for."""


def pipeline_of(construct: str) -> Pipeline:
    return loads(HEAD + PIPELINES[construct], "p.yaml")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    path = tmp_path_factory.mktemp("site") / "site.yaml"
    path.write_text(SITE)
    return Site.load(str(path))


def cases(constructs: tuple[str, ...]) -> Iterator[Any]:
    """Target × construct; a gap is marked with its reason, strictly."""
    for target in HERE:
        table = load_target(target).capabilities
        for construct in (each for each in constructs if each in PIPELINES):
            gap = next((table[each] for each in used(construct) if isinstance(table[each], NoSupport)), None)
            marks = [] if gap is None else [_gap(gap)]
            yield pytest.param(target, construct, marks=marks, id=f"{target}-{construct}")


def _gap(why: NoSupport) -> pytest.MarkDecorator:
    return pytest.mark.xfail(strict=True, raises=(GpuflowError, AssertionError), reason=f"{why.gap}: {why.reason}")


def used(construct: str) -> list[str]:
    """The constructs of a pipeline of the table, its own first."""
    return sorted({use.construct for use in uses(pipeline_of(construct))}, key=lambda name: (name != construct, name))


def test_the_environment_has_the_sdk_that_it_is_for() -> None:
    wanted = os.environ.get("GPUFLOW_TEST_TARGET")  # set by make
    assert wanted is None or wanted in HERE


def test_every_construct_has_a_pipeline_that_uses_it() -> None:
    assert sorted(PIPELINES) == sorted(VOCABULARY)
    assert [name for name in PIPELINES if name not in used(name)] == []


@pytest.mark.parametrize("construct", POD)
def test_what_only_changes_the_pod_changes_the_pod(construct: str, site: Site) -> None:
    """Targets that take pods whole carry these unseen, so `pod_for` may drop none of them."""
    pipeline = pipeline_of(construct)
    field = construct.split(".")[0]
    plain_step = pipeline.steps["a"].model_copy(update={field: type(pipeline.steps["a"]).model_fields[field].default})
    without = pipeline.model_copy(update={"steps": {**pipeline.steps, "a": plain_step}})
    assert pod_for(pipeline, "a", site) != pod_for(without, "a", site)


@pytest.mark.parametrize(("target", "construct"), list(cases(VOCABULARY)))
def test_a_construct_is_compiled_as_it_is(target: str, construct: str, site: Site) -> None:
    request = Request(pipeline_of(construct), site, "team-a", "p.yaml")
    compiled = compile_with(load_target(target), request, allow_lossy=False)
    assert "LOST: " not in compiled.artifact.text


@pytest.mark.parametrize(("target", "construct"), list(cases(POD)))
def test_the_pod_is_the_same_everywhere(target: str, construct: str, site: Site) -> None:
    reader = importlib.import_module(f"tests.targets.{target}.pods")
    pipeline, facts = pipeline_of(construct), load_target(target).facts
    text = compile_with(
        load_target(target), Request(pipeline, site, "team-a", "p.yaml"), allow_lossy=True
    ).artifact.text
    own = pod_for(pipeline, "a", site, engine=Engine(facts.supervisor, facts.outputs_dir))
    assert plain(reader.read_pods(text)["a"]) == plain(reader.comparable(own))


def plain(pod: Any) -> Any:
    return json.loads(json.dumps(pod, default=str))


@pytest.mark.parametrize("construct", PIPELINES)
@pytest.mark.parametrize("target", HERE)
def test_a_loss_is_said_by_name_everywhere(target: str, construct: str, site: Site) -> None:
    chosen = load_target(target)
    request = Request(pipeline_of(construct), site, "team-a", "p.yaml")
    lost = [name for name in VOCABULARY if name in used(construct) and isinstance(chosen.capabilities[name], NoSupport)]
    if lost:
        with pytest.raises(GpuflowError) as refusal:
            compile_with(chosen, request, allow_lossy=False)
        messages = [finding.message for finding in refusal.value.findings if finding.code == "GF301"]
        assert [f"{target} does not support {name}" in text for name, text in zip(lost, messages, strict=True)]
    if needed := set(lost) & set(REQUIRED_CONSTRUCTS):
        # A text that nobody can give leaves a hole in a command, and outputs that nobody reads are none.
        with pytest.raises(GpuflowError, match=f"does not support ({'|'.join(map(re.escape, needed))})"):
            compile_with(chosen, request, allow_lossy=True)
        return
    try:
        compiled = compile_with(chosen, request, allow_lossy=True)
    except GpuflowError as refusal:
        raise AssertionError(f"{construct} stops {target} although losses are allowed") from refusal
    assert [loss.construct for loss in compiled.losses] == lost
    header = [line for line in compiled.artifact.text.splitlines() if "LOST: " in line]
    said = [finding for finding in findings_of(chosen, request, compiled) if finding.code == "GF303"]
    assert len(header) == len(said) == len(lost)
    weaker = [name for name in used(construct) if isinstance(chosen.capabilities[name], PartialSupport)]
    notes = findings_of(chosen, request, compiled)
    by_table = [name for name in weaker if not chosen.capabilities[name].by_step]
    for name in by_table:
        assert any(note.code == "GF305" and note.message.startswith(f"{name}: ") for note in notes)
    for name in set(weaker) - set(by_table):
        said_of_steps = [note.message for note in notes if note.code in BY_STEP]
        (note,) = [text for text in said_of_steps if text.startswith('step "a": ') and WORDS[name].search(text)]
        assert f"WEAKER: {note}" in compiled.artifact.text


BY_STEP = ("GF391", "GF392", "GF393", "GF394")
"""Notes on the retries of single steps, where what becomes of them depends on more than the construct."""
WORDS = {
    "retry.any": re.compile("retr(y repeats|ies repeat)"),
    "retry.failures": re.compile("a failed pod"),
    "retry.final_exit_codes": re.compile("Every exit code counts alike"),
    "retry.interruptions": re.compile("a deleted pod"),
    "retry.retryable_exit_codes": re.compile("Every exit code counts alike"),
}
"""What a note on a plain step says of each construct that is weaker there."""


@pytest.mark.parametrize("target", HERE)
def test_partial_losses_are_said_alike_on_the_console_in_json_and_in_the_file(
    target: str, gpuflow: Gpuflow, tmp_path: Path
) -> None:
    """Kubeflow has losses inside a construct that may be left out; the others refuse theirs whatever is allowed."""
    path = tmp_path / "p.yaml"
    path.write_text(
        HEAD + "steps: {a: {command: [x], security: {user: 5, fs_group: 7}, termination_grace: 1m, queue_timeout: 1h}}"
    )
    words = ("compile", path, "--target", target, "--allow-lossy")
    console, data = gpuflow(*words), gpuflow(*words, "--format", "json").data
    header = [line.partition("LOST: ")[2] for line in console.out.splitlines() if "LOST: " in line]
    assert len(header) == {"kubeflow": 3, "argo": 1, "airflow": 0}.get(target, len(header))
    assert [finding["message"] for finding in data["findings"] if finding["code"] == "GF303"] == header
    assert all(f"GF303 {line}" in console.err for line in header)


SIGNED = """
apiVersion: gpuflow/v1
kind: Site
name: signed
extends: nvidia
runtime: {delivery: config-map, key: {secret: gpuflow-key, key: signing}}
"""
KEPT = "steps: {train: {image: i, command: [t], checkpoint: {path: /ckpt, store: 's3://b/p'}}}\n"


@pytest.mark.parametrize("name", HERE)
def test_the_key_and_the_supervisors_digest_stand_in_every_artifact(name: str, tmp_path: Path) -> None:
    (tmp_path / "site.yaml").write_text(SIGNED)
    signed, target = Site.load(str(tmp_path / "site.yaml")), load_target(name)
    request = Request(loads(HEAD + KEPT), signed, "ml", "p.yaml")
    done = compile_with(target, request, allow_lossy=True)
    text = "".join(artifact.text for artifact in done.artifacts)
    runtime = bundle.config_map("gpuflow-runtime")
    digest = runtime["metadata"]["annotations"][bundle.ANNOTATION]
    head, _, rest = text.partition(f"# Supervisor: ConfigMap {runtime['metadata']['name']}, {digest}.")
    assert head != text
    assert runtime["metadata"]["name"] in rest
    assert "--key-file=/gpuflow/key/signing" in rest
    assert "gpuflow-key" in rest
    if name == "kubeflow":
        said = [finding.message for finding in findings_of(target, request, done)]
        assert any('KFP mounts the whole Secret "gpuflow-key"' in message for message in said)


@pytest.mark.parametrize("name", HERE)
def test_an_artifact_names_no_supervisor_that_it_does_not_mount(name: str, tmp_path: Path) -> None:
    (tmp_path / "site.yaml").write_text(SIGNED)
    plain = "steps: {a: {image: i, command: [t]}}\n"
    for site, source in ((Site.load(str(tmp_path / "site.yaml")), plain), (Site.load("nvidia"), KEPT)):
        done = compile_with(load_target(name), Request(loads(HEAD + source), site, "ml", "p.yaml"), allow_lossy=True)
        assert "Supervisor:" not in done.text
        assert "gpuflow-runtime" not in done.text


@pytest.mark.parametrize("target", HERE)
@pytest.mark.parametrize(
    ("text", "plans"),
    [
        pytest.param("steps: {a: {command: [x], memory: 1Gi, retry: 2}}", 1, id="its own meaning"),
        pytest.param("steps: {b: {command: [x], needs: [a]}, a: {command: [x]}}", 2, id="in another order"),
    ],
)
def test_a_compile_with_findings_plans_no_pipeline_twice(
    target: str, text: str, plans: int, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted, chosen = Counted(monkeypatch), load_target(target)
    request = Request(loads(HEAD + text, "p.yaml"), meaning_of(site), None, "p.yaml")
    findings_of(chosen, request, compile_with(chosen, request, allow_lossy=False))
    assert counted.plans() == plans
