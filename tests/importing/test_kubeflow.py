"""Pipelines of Kubeflow as the importer finds them: which settings are theirs, whose spelling, of which types."""

from __future__ import annotations

import json

import pytest
import yaml

from gpuflow.formats.documents import Library, documents_of
from gpuflow.importing.pipelines import ImportResult, import_document
from gpuflow.kubernetes.yaml_scalars import parse_manifests
from gpuflow.readers.interface import foreign_in, parameters_of
from tests.importing.samples import KFP, SITE, import_text

PIPELINE, SETTINGS = KFP.split("---\n")
OTHER = SETTINGS.replace("team: nlp", "team: vision")


def imported(text: str, index: int = 0) -> ImportResult:
    documents = documents_of(parse_manifests(text, "x.yaml"), "x.yaml")
    return import_document(documents[index], Library(tuple(documents)), SITE)


def test_of_two_pipelines_in_a_file_each_has_the_settings_that_follow_it() -> None:
    text = "---\n".join((PIPELINE, SETTINGS, PIPELINE, OTHER))
    assert ["nlp" in imported(text, index).text() for index in (0, 2)] == [True, False]
    assert ["vision" in imported(text, index).text() for index in (0, 2)] == [False, True]


def job(**more: object) -> str:
    parts = [yaml.safe_load(part) for part in (PIPELINE, SETTINGS)]
    return json.dumps({"pipelineSpec": parts[0], "platformSpec": parts[1], **more})


def test_a_run_has_its_own_settings_and_the_values_that_it_is_started_with() -> None:
    found = imported(job(runtimeConfig={"parameterValues": {"greeting": "ahoy"}}))
    assert found.text().replace("default: ahoy", "default: hello") == imported(KFP).text().replace(
        "PipelineSpec", "PipelineJob"
    )
    assert [each.message for each in found.notes if "greeting" in each.message] == [
        "greeting: the value of the run is the default of the parameter"
    ]


def test_a_version_of_a_pipeline_is_imported_and_takes_its_parameters() -> None:
    head = {"apiVersion": "pipelines.kubeflow.org/v2beta1", "kind": "PipelineVersion", "metadata": {"name": "talk"}}
    text = json.dumps({**head, "spec": {"pipelineName": "talks", **json.loads(job())}})
    assert imported(text).text() == imported(KFP).text().replace("PipelineSpec", "PipelineVersion")
    (foreign,) = foreign_in(documents_of(parse_manifests(text, "x.yaml"), "x.yaml"))[0]
    assert parameters_of(foreign.document, foreign.library) == {"greeting"}


@pytest.mark.parametrize(
    "more",
    [
        {"runtimeConfig": {"gcsOutputDirectory": "gs://x"}},
        {"runtimeConfig": {"parameterValues": {"none": 1}}},
        {"serviceAccount": "x"},
    ],
)
def test_what_a_run_says_beside_its_values_is_listed(more: dict[str, object]) -> None:
    (finding,) = imported(job(**more)).findings
    assert finding.code == "GF786"


def test_seconds_of_a_toleration_may_be_a_text_as_protobuf_writes_them() -> None:
    settings = SETTINGS.replace(
        "podMetadata:",
        "tolerations: [{key: k, operator: Exists, effect: NoExecute, tolerationSeconds: '5'}]\n          podMetadata:",
    )
    assert "toleration_seconds: 5" in imported(f"{PIPELINE}---\n{settings}").text()


def test_fields_may_be_spelled_as_protobuf_spells_them() -> None:
    words = ("componentRef", "dependentTasks", "executorLabel", "parameterIterator", "itemInput", "podMetadata")
    snaked = KFP
    for word in words:
        snaked = snaked.replace(word, "".join(f"_{each.lower()}" if each.isupper() else each for each in word))
    assert imported(snaked).text() == imported(KFP).text()


@pytest.mark.parametrize(
    ("before", "after", "named"),
    [
        ("taskInfo: {name: say}", "retryPolicy: 3", "retryPolicy"),
        ("cpuLimit: 2.0", "cpuLimit: many", "cpuLimit"),
        ("command: [say,", "command: [say, 1,", "command.1"),
        ("dependentTasks: [say]", "dependentTasks: say", "dependentTasks"),
        ("labels: {nvidia.com/gpu.product: NVIDIA-L4}", "labels: [a]", "labels"),
        ("components:", "components: []\nunused:", "components"),
    ],
)  # fmt: skip
def test_a_value_of_another_type_is_listed_and_never_left_out(before: str, after: str, named: str) -> None:
    assert before in KFP
    found = import_text(KFP.replace(before, after))
    assert found.pipeline is None
    assert [each.code for each in found.findings if named in each.message and "it should be" in each.message] == [
        "GF789"
    ]
