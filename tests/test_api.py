"""The front door takes odd input with a clear word: GpuflowError for bad documents and names, TypeError for types.

Tests gpuflow/api.py.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import gpuflow
from gpuflow.core.errors import GpuflowError
from gpuflow.demands import Demand, PodSet, StepDemand, graph_of
from gpuflow.site import Site
from gpuflow.targets import load_target
from gpuflow.targets.target import Request, findings_of

NAMESPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-a"}}
POD: dict[str, Any] = {"metadata": {}, "spec": {"containers": [{"name": "main", "image": "i"}]}}


def step(name: str, pod: Any = POD) -> StepDemand:
    return StepDemand(name, (PodSet("main", 1, pod),))


def demand(*steps: StepDemand, engine: str = "none") -> Demand:
    return Demand("by-hand", steps, graph_of(steps), engine=engine)


@pytest.fixture
def pipeline(tmp_path: Path) -> Path:
    path = tmp_path / "p.yaml"
    path.write_text("apiVersion: gpuflow/v1\nkind: Pipeline\nname: p\nsteps: {a: {image: i, command: [c]}}\n")
    return path


def test_a_path_is_taken_everywhere(pipeline: Path) -> None:
    assert gpuflow.load(pipeline).name == gpuflow.demand(pipeline).name == "p"
    assert gpuflow.check(pipeline, [NAMESPACE], namespace="team-a").verdict == "unknown"
    assert [each.name for each in gpuflow.compile(pipeline, "airflow").artifacts] == ["p.py"]


def test_findings_of_a_compile_are_made_when_asked_for_and_once(
    pipeline: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline.write_text(pipeline.read_text().replace("[c]", "[c], outputs: {o: int}"))  # needs gpuflow-run: a note
    asked: list[object] = []
    monkeypatch.setattr(gpuflow.api, "findings_of", lambda *given: asked.append(given) or findings_of(*given))
    compiled = gpuflow.compile(pipeline, "airflow")
    assert compiled.text and compiled.losses == () and not asked
    whole = findings_of(
        load_target("airflow"), Request(gpuflow.load(pipeline), Site.load("nvidia"), None, ""), compiled
    )
    assert whole and compiled.findings == compiled.findings == tuple(whole)
    assert len(asked) == 1
    monkeypatch.undo()
    assert pickle.loads(pickle.dumps(gpuflow.compile(pipeline, "airflow"))).findings == compiled.findings


def test_one_manifest_is_a_cluster(pipeline: Path) -> None:
    assert gpuflow.check(pipeline, NAMESPACE, namespace="team-a").verdict == "unknown"


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda p: gpuflow.loads(None), "text is a NoneType; it must be str or bytes"),  # type: ignore[arg-type]  # what nobody should pass, or a table of options
        (lambda p: gpuflow.compile({}, "airflow"), "pipeline is a dict"),  # type: ignore[arg-type]  # what nobody should pass, or a table of options
        (lambda p: gpuflow.compile(p, None), "target is a NoneType"),  # type: ignore[arg-type]  # what nobody should pass, or a table of options
        (lambda p: gpuflow.compile(p, ["argo"]), "target is a list"),  # type: ignore[arg-type]  # what nobody should pass, or a table of options
        (lambda p: gpuflow.compile(p, "airflow", site=None), "site is a NoneType"),  # type: ignore[arg-type]  # what nobody should pass, or a table of options
        (lambda p: gpuflow.compile(p, "airflow", namespace=3), "namespace is a int"),  # type: ignore[arg-type]  # what nobody should pass, or a table of options
        (lambda p: gpuflow.compile(p, "airflow", pools=3), "pools is a int; it must be bool"),
        (lambda p: gpuflow.compile(p, "airflow", standalone="no"), "standalone is a str; it must be bool"),
        (lambda p: gpuflow.demand(gpuflow.demand(p)), "pipeline is a Demand"),  # type: ignore[arg-type]  # what nobody should pass, or a table of options
        (lambda p: gpuflow.demand(p, engine=5), "engine is a int"),  # type: ignore[arg-type]  # what nobody should pass, or a table of options
        (lambda p: gpuflow.check(None, [NAMESPACE]), "pipeline is a NoneType"),  # type: ignore[arg-type]  # what nobody should pass, or a table of options
        (lambda p: gpuflow.check(p, None, namespace="a"), "cluster is a NoneType"),  # type: ignore[arg-type]  # what nobody should pass, or a table of options
        (lambda p: gpuflow.check(p, [], namespace="a", runs="2"), "runs is a str"),  # type: ignore[arg-type]  # what nobody should pass, or a table of options
        (lambda p: gpuflow.gpus(3), "text is a int"),  # type: ignore[arg-type]  # what nobody should pass, or a table of options
        (lambda p: gpuflow.gpus(mig="yes"), "mig is a str"),  # type: ignore[arg-type]  # what nobody should pass, or a table of options
    ],
)
def test_a_wrong_type_is_named_with_what_it_must_be(call: Callable[[Path], Any], words: str, pipeline: Path) -> None:
    with pytest.raises(TypeError) as wrong:
        call(pipeline)
    assert words in str(wrong.value)


@pytest.mark.parametrize(
    ("call", "code", "words"),
    [
        (lambda p: gpuflow.compile(p, "Argo"), "GF302", '"Argo" is not a target'),
        (lambda p: gpuflow.compile(p, "airflow", namespace="Team A"), "GF903", '"Team A" is not a namespace'),
        (lambda p: gpuflow.check(p, NAMESPACE, namespace=""), "GF903", '"" is not a namespace'),
        (lambda p: gpuflow.demand(p, engine="argoo"), "GF302", '"argoo" is not an engine'),
        (lambda p: gpuflow.check(p, [], namespace="a"), "GF401", "holds no manifests"),
        (lambda p: gpuflow.gpus(memory="much"), "GF121", '"much" is not a quantity'),
        (
            lambda p: gpuflow.check(demand(step("a")), NAMESPACE, namespace="team-a", engine="argo"),
            "GF903",
            "engine='argo' has no effect: the demand is for 'none'",
        ),
        (
            lambda p: gpuflow.check(demand(step("a"), engine="zz"), NAMESPACE, namespace="team-a"),
            "GF302",
            '"zz" is not an engine',
        ),
    ],
)
def test_a_bad_value_is_a_finding(call: Callable[[Path], Any], code: str, words: str, pipeline: Path) -> None:
    with pytest.raises(GpuflowError) as wrong:
        call(pipeline)
    (finding,) = wrong.value.findings
    assert (finding.code, words in finding.message) == (code, True)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: demand(step("a"), step("a")), "two steps are called a"),
        (lambda: step("a", {}), "a pod is a mapping with metadata and spec"),
        (lambda: step("a", None), "a pod is a mapping with metadata and spec"),
    ],
)
def test_a_demand_by_hand_that_says_nonsense_is_refused_at_once(call: Callable[[], Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call()


@pytest.mark.parametrize(
    "models",
    [
        "from gpuflow import Step; from gpuflow import Pipeline",
        "from gpuflow import Pipeline; from gpuflow.spec.step import Step",
        "from gpuflow.spec.pipeline import Pipeline, Step",
        "from gpuflow.spec.builder import gpu; from gpuflow.spec.pipeline import Pipeline, Step",
        "from gpuflow.spec.step import Step; from gpuflow.spec.pipeline import Pipeline",
    ],
)
def test_what_is_made_in_python_is_checked_however_its_model_was_imported(models: str) -> None:
    """The rules stand above the models; a new interpreter has loaded neither."""
    code = f"""
from gpuflow.core.errors import GpuflowError
{models}

def codes(make):
    try:
        make()
    except GpuflowError as refusal:
        return [finding.code for finding in refusal.findings]

def opened():
    with Pipeline("p") as p:
        p.step("a", ["c"])

made = {{"a": {{"command": ["c"]}}}}
print(codes(lambda: Step("a", command=["c"])), codes(lambda: Pipeline("p", steps=made)), codes(opened))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("['GF176'] ['GF176'] ['GF176']\n", "")
