"""Fields that an object does not have, and values of another type: said with the place and what was meant.

Tests gpuflow/formats/schemas.py and gpuflow/readers/findings/strictness.py. What a real API server says of the same
documents is compared by `python -m proofs strict-documents`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpuflow
from gpuflow.checker.report import Report
from gpuflow.core.yaml_tree import parse_all
from gpuflow.formats.documents import documents_of, read_documents
from gpuflow.formats.schemas import DATA, schema_of
from gpuflow.readers.findings.strictness import strict_findings
from tests.assumed import RECORD
from tests.cli.commands import EXAMPLES, Gpuflow
from tests.conftest import ROOT

JOB = """apiVersion: batch/v1
kind: Job
metadata: {name: train}
spec:
  %s
  template:
    spec:
      restartPolicy: Never
      %s
      containers:
        - {name: main, image: train, %s}
"""
TASK = """apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata: {name: sweep}
spec:
  entrypoint: main
  %s
  templates:
    - name: main
      dag: {tasks: [{name: a, template: train, %s}]}
    - name: train
      container: {image: train, %s}
"""
JOBSET = """apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: gang}
spec:
  replicatedJobs:
    - {name: w, %s, template: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: m, image: i}]}}}}}
"""


def said(text: str) -> list[str]:
    """The code, the place and the hint of each finding."""
    found = [x for each in documents_of(parse_all(text, "f.yaml"), "f.yaml") for x in strict_findings(each)]
    return [f"{x.code} {x.where.line} {x.hint}" for x in found]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (JOB % ("paralellism: 4", "", ""), ['GF815 5 did you mean "parallelism"?']),
        (JOB % ("", "nodeselector: {a: b}", ""), ['GF815 9 did you mean "nodeSelector"?']),
        (JOB % ("nodeSelector: {a: b}", "", ""), ['GF815 5 "nodeSelector" is a field of spec.template.spec']),
        (JOB % ("", "", "resources: {limit: {nvidia.com/gpu: 16}}"), ['GF815 11 did you mean "limits"?']),
        (JOB % ("", "", "backoffLimit: 1"), ['GF815 11 "backoffLimit" is a field of spec']),
        (JOB % ("", "hostNetwork: 'true'", ""), ["GF816 9 None"]),
        (JOB % ("", "", "env: [{name: A, value: 1}]"), ["GF816 11 None"]),
        (JOB % ("", "", "command: python"), ["GF816 11 None"]),
        (JOB % ("", "", "resources: {requests: {cpu: 0.5, memory: 1Gi}}"), []),
        (JOB % ("completions: null", "terminationGracePeriodSeconds: 3e1", ""), []),
        (JOB % ("", "terminationGracePeriodSeconds: 1.5", ""), ["GF816 9 None"]),
        (JOB % ("parallelism: 3000000000", "", ""), ["GF816 5 None"]),
        (TASK % ("", 'withParams: "[1,2,3]"', ""), ['GF815 9 did you mean "withParam" or "withItems"?']),
        (TASK % ("", "paralellism: 2", ""), ["GF815 9 None"]),
        (TASK % ("", "", "resource: {limits: {nvidia.com/gpu: 1}}"), ['GF815 11 did you mean "resources"?']),
        (TASK % ("", "", "resources: {request: {nvidia.com/gpu: 1}}"), ['GF815 11 did you mean "requests"?']),
        (TASK % ("", "", "resources: {requests: {cpu: 0.5}}"), ["GF816 11 None"]),
        (TASK % ("synchronization: {semaphore: {configMapKeyRef: {name: a, key: b}}}", "", ""), []),
        (TASK % ("podResources: {limits: {cpu: 1}}", "", ""), []),
        (TASK % ("podSpecPatch: 'nodeselector: {a: b}'", "", ""), ['GF815 6 did you mean "nodeSelector"?']),
        (TASK % ("podSpecPatch: '{\"containers\": {{inputs.parameters.all}}}'", "", ""), []),
        (TASK % ("podSpecPatch: 'containers: [{$patch: delete, name: a}]'", "", ""), []),
        (JOBSET % "replicas: 2", []),
        (JOBSET % "replica: 2", ['GF815 6 did you mean "replicas"?']),
        (JOBSET % "dependsOn: [{name: a, status: Done}]", ["GF818 6 known here: Complete, Ready"]),
        (JOBSET % "dependsOn: [{name: a}]", ["GF817 6 None"]),
        (JOBSET % "dependsOn: [null]", ["GF816 6 None"]),
    ],
)  # fmt: skip
def test_each_mistake_is_said_once_at_its_place(text: str, expected: list[str]) -> None:
    assert said(text) == expected


def test_manifests_of_resource_templates_are_read_and_tags_are_left_open() -> None:
    text = """apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata: {name: w}
spec:
  templates:
    - name: make
      resource:
        action: %s
        manifest: |
          apiVersion: batch/v1
          kind: Job
          spec: {paralellism: "{{inputs.parameters.n}}", completions: "{{inputs.parameters.n}}", backoffLimit: "3"}
"""
    assert said(text % "create") == ['GF815 9 did you mean "parallelism"?', "GF816 9 None"]
    assert said(text % "get") == []


@pytest.mark.parametrize(
    ("old", "new"), [("batch/v1", "batch/v2"), ("batch/v1", "batch/v1beta1")], ids=["not yet", "no more"]
)
def test_a_version_that_the_cluster_may_not_serve_is_unknown(tmp_path: Path, old: str, new: str) -> None:
    text = JOB % ("", "", "")
    assert "GF819" not in {each.code for each in check(tmp_path, text).findings}
    report = check(tmp_path, text.replace(old, new))
    (said,) = (each for each in report.findings if each.code == "GF819")
    assert report.verdict == "unknown" and said.hint is not None and said.hint.startswith("write apiVersion: batch/v1,")


def test_a_version_without_a_schema_is_said_once() -> None:
    (found,) = strict_findings(
        documents_of(parse_all((JOB % ("", "", "")).replace("batch/v1", "batch/v9"), "f"), "f")[0]
    )
    assert (found.code, found.severity) == ("GF819", "warning")
    assert said("apiVersion: example.org/v1\nkind: Thing\nspec: {a: b}\n") == []


def definition(fields: str) -> str:
    return f"""apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {{name: jobsets.jobset.x-k8s.io}}
spec:
  group: jobset.x-k8s.io
  names: {{kind: JobSet}}
  versions:
    - name: v1alpha2
      schema: {{openAPIV3Schema: {{type: object, properties: {{spec: {{type: object, properties: {fields}}}}}}}}}
"""


OPEN = "{replicatedJobs: {type: array, items: {type: object, x-kubernetes-preserve-unknown-fields: true}}}"


def check(folder: Path, text: str, cluster: str = "") -> Report:
    (folder / "job.yaml").write_text(text)
    (folder / "cluster.yaml").write_text(f"{RECORD}\n---\n{cluster}" if cluster else RECORD)
    return gpuflow.check(folder / "job.yaml", folder / "cluster.yaml", namespace="team-a")


def test_the_definition_of_the_cluster_counts_before_ours(tmp_path: Path) -> None:
    text = JOBSET % "replica: 2"
    assert [x.code for x in check(tmp_path, text).findings if x.code == "GF815"] == ["GF815"]
    assert "GF815" not in [x.code for x in check(tmp_path, text, definition(OPEN)).findings]
    other = check(tmp_path, JOBSET % "replicas: 2", definition("{}")).findings
    assert any("is no field of the cluster's JobSet" in x.message for x in other)


def test_what_the_api_server_refuses_is_never_and_what_depends_on_the_crds_is_unknown(tmp_path: Path) -> None:
    assert check(tmp_path, JOB % ("", "", "")).verdict != "never"
    assert check(tmp_path, JOB % ("manualSelector: soon", "", "")).verdict == "never"
    stray = check(tmp_path, JOB % ("paralellism: 4", "", ""))
    assert stray.verdict == "never" and 'unknown field "spec.paralellism"' in str(stray.findings[0].kubernetes)
    lost = check(tmp_path, TASK % ("", "paralellism: 4", ""))
    assert lost.verdict == "unknown" and lost.fails({"never"}), "the check fails, whatever the verdict"
    maybe = check(tmp_path, TASK % ("templateDefaults: {retryStrategy: {retryPolicy: Often}}", "", ""))
    assert maybe.verdict == "unknown"


def test_a_silenced_field_fails_no_check(tmp_path: Path) -> None:
    report = check(tmp_path, f"# gpuflow: silence GF815\n{JOB % ('paralellism: 4', '', '')}")
    assert "GF815" not in [x.code for x in report.findings] and not report.fails({"never"})


def test_objects_that_start_nothing_are_looked_at_too(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    run = Gpuflow(capsys)
    (tmp_path / "all.yaml").write_text(
        f"{JOB % ('', '', '')}---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: c}}\ndatas: {{}}\n"
    )
    (tmp_path / "cluster.yaml").write_text(RECORD)
    words = ("--cluster", tmp_path / "cluster.yaml", "--namespace", "team-a", "--fail-on", "never")
    answer = run("check", tmp_path / "all.yaml", *words, "--format", "json")
    assert answer.code == 1
    (found,) = [x for x in answer.data["findings"] if x["code"] == "GF815"]
    assert found["hint"] == 'did you mean "data" or "metadata"?'
    for command in ("demand", "validate"):
        (tmp_path / "job.yaml").write_text(JOB % ("paralellism: 4", "", ""))
        answer = run(command, tmp_path / "job.yaml")
        assert "GF815" in answer.out + answer.err


def test_examples_have_no_mistakes() -> None:
    documents = [each for file in sorted(EXAMPLES.rglob("*.yaml")) for each in read_documents(str(file))]
    assert not [x.render() for each in documents for x in strict_findings(each) if x.code != "GF819"]


def test_the_schemas_say_where_they_are_from() -> None:
    data = json.loads(DATA.read_bytes())
    assert {each["licence"] for each in data["sources"]} == {"Apache-2.0"}
    assert all("@v" in each["module"] for each in data["sources"])
    assert DATA.stat().st_size < 300_000


@pytest.mark.go
def test_the_file_is_what_the_tool_writes() -> None:
    assert subprocess.run([sys.executable, ROOT / "tools" / "schemas.py", "--check"], check=False).returncode == 0


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(("spec", "template", "containers", "name", "metadata", "labels", "x")), inner)
    ),
    max_leaves=12,
)


@given(VALUES, st.sampled_from(("Pod", "ConfigMap", "Node")))
def test_no_document_breaks_the_walk_and_every_fault_has_a_place_in_it(value: object, kind: str) -> None:
    schema = schema_of("v1", kind)
    assert schema is not None
    tree = {"apiVersion": "v1", "kind": kind, "metadata": value, "spec": value}
    for fault in schema.faults(tree):
        found: object = tree
        for part in fault.path:
            assert isinstance(found, dict | list)
            found = found[part]  # type: ignore[index]  # a key of a map, or a place in a list


def test_many_faults_are_counted_and_looking_for_what_was_meant_takes_no_time() -> None:
    keys = "".join(f"k{number}: 1\n" for number in range(1_200))
    (document,) = documents_of(parse_all(keys + JOB % ("", "", ""), "f.yaml"), "f.yaml")
    found = list(strict_findings(document))
    assert len(found) == 1_001
    assert found[-1].message == "Job train: more than 1,000 fields are wrong; the rest is not said"
