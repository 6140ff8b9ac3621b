"""Documents of other tools before a cluster: what is only said where its nodes and limits are known.

Tests gpuflow/readers/findings/rules.py.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpuflow.cli.main import main
from tests.readers.kubernetes.samples import SAMPLES

QUOTA = """apiVersion: v1
kind: ResourceQuota
metadata: {name: q, namespace: team}
spec: {hard: {pods: "10"}}
status: {hard: {pods: "10"}, used: {pods: "0"}}
"""
WHOLE = """---
apiVersion: v1
kind: Node
metadata: {name: whole, labels: {pool: whole, nvidia.com/gpu.product: NVIDIA-A100-SXM4-80GB}}
status: {allocatable: {cpu: "64", memory: 512Gi, pods: "100", nvidia.com/gpu: "8"}}
"""
SINGLE = """---
apiVersion: v1
kind: Node
metadata: {name: single, labels: {pool: single, nvidia.com/gpu.product: NVIDIA-A100-SXM4-80GB-MIG-1g.10gb}}
status: {allocatable: {cpu: "64", memory: 512Gi, pods: "100", nvidia.com/gpu: "56"}}
"""
MIXED = """---
apiVersion: v1
kind: Node
metadata: {name: mixed, labels: {pool: mixed, nvidia.com/gpu.product: NVIDIA-A100-SXM4-80GB}}
status: {allocatable: {cpu: "64", memory: 512Gi, pods: "100", nvidia.com/mig-1g.10gb: "56"}}
"""
LIMITS = """---
apiVersion: v1
kind: LimitRange
metadata: {name: gpus, namespace: team}
spec: {limits: [{type: Container, max: {nvidia.com/gpu: "8"}}]}
"""


def codes(capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str, cluster: str, *more: str) -> dict[str, str]:
    """The findings of a check, by code."""
    (tmp_path / "cluster.yaml").write_text(cluster)
    (tmp_path / "theirs.yaml").write_text(text)
    where = ["--cluster", str(tmp_path / "cluster.yaml"), "--namespace", "team", "--format", "json"]
    main(["check", str(tmp_path / "theirs.yaml"), *where, *more])
    report = json.loads(capsys.readouterr().out)
    return {each["code"]: each["message"] for each in report["findings"]}


@pytest.mark.parametrize(
    ("pool", "said"),
    [("whole", None), ("single", "GF762"), ("mixed", "GF763")],
)
def test_gpus_that_are_slices_are_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, pool: str, said: str | None
) -> None:
    text = SAMPLES["job"].text.replace(
        "restartPolicy: Never", f"restartPolicy: Never\n      nodeSelector: {{pool: {pool}}}"
    )
    found = codes(capsys, tmp_path, text, QUOTA + WHOLE + SINGLE + MIXED)
    assert {"GF762", "GF763"} & found.keys() == ({said} if said else set())
    if said:
        quiet = codes(capsys, tmp_path, f"# gpuflow: silence {said}\n{text}", QUOTA + WHOLE + SINGLE + MIXED)
        assert said not in quiet and said in quiet["GF343"]


def test_a_limit_range_that_hands_gpus_to_sidecars_is_said_of_documents_that_are_not_ours(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    text = SAMPLES["job"].text + "      - {name: proxy, image: p, resources: {limits: {cpu: '1', memory: 1Gi}}}\n"
    found = codes(capsys, tmp_path, text, QUOTA + WHOLE + LIMITS)
    assert "proxy of j" in found["GF513"]
    assert "GF513" not in codes(capsys, tmp_path, text, QUOTA + WHOLE)
    assert "GF513" not in codes(capsys, tmp_path, f"# gpuflow: silence GF513\n{text}", QUOTA + WHOLE + LIMITS)


def test_a_report_has_the_remarks_and_overlapping_runs_once(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    found = codes(capsys, tmp_path, SAMPLES["cron job"].text, QUOTA + WHOLE)
    assert "GF553" in found and "GF772" not in found
    found = codes(capsys, tmp_path, SAMPLES["deployment"].text, QUOTA + WHOLE)
    assert "an update runs up to 5" in found["GF773"]


def test_a_site_silences_for_every_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    site = tmp_path / "site.yaml"
    site.write_text("apiVersion: gpuflow/v1\nkind: Site\nname: s\nextends: nvidia\nsilence: GF773\n")
    found = codes(capsys, tmp_path, SAMPLES["deployment"].text, QUOTA + WHOLE, "--site", str(site))
    assert "GF773" not in found and "GF773" in found["GF343"]


def test_demand_says_the_remarks_on_standard_error(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "theirs.yaml"
    file.write_text(SAMPLES["deployment"].text)
    assert main(["demand", str(file), "--format", "json"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["peak"]["pods"]["value"] == "4"
    assert f"{file}:4:1: GF773" in said.err


def test_what_a_document_asks_for_without_limit_is_never_admitted_and_the_hint_says_why(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    text = SAMPLES["job"].text.replace("limits", "requests")
    found = codes(capsys, tmp_path, text, QUOTA + WHOLE)
    assert {"GF503", "GF761"} <= found.keys()


def test_names_with_dots_are_checked_together(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text(QUOTA + WHOLE)
    files = []
    for name in ("a.b", "a"):
        file = tmp_path / f"{name}.yaml"
        file.write_text(SAMPLES["deployment"].text.replace("name: serve", f"name: {name}"))
        files.append(str(file))
    where = ["--cluster", str(tmp_path / "cluster.yaml"), "--namespace", "team", "--format", "json", "--together"]
    assert main(["check", *files, *where]) in (0, 1)
    assert "together" in capsys.readouterr().out


QUEUES = """---
apiVersion: kueue.x-k8s.io/v1beta1
kind: ResourceFlavor
metadata: {name: any}
spec: {}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: ClusterQueue
metadata: {name: gpus}
spec:
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [nvidia.com/gpu, cpu, memory]
    flavors:
    - name: any
      resources:
      - {name: nvidia.com/gpu, nominalQuota: "6"}
      - {name: cpu, nominalQuota: "99"}
      - {name: memory, nominalQuota: 1Ti}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: LocalQueue
metadata: {name: gpus, namespace: team}
spec: {clusterQueue: gpus}
"""
CONFIGURATION = """---
apiVersion: v1
kind: ConfigMap
metadata: {name: kueue-manager-config, namespace: kueue-system}
data:
  controller_manager_config.yaml: |
    apiVersion: config.kueue.x-k8s.io/v1beta1
    kind: Configuration
    integrations: {frameworks: [%s]}
"""


@pytest.mark.parametrize(("frameworks", "waits"), [("batch/job", True), ("batch/job, pod", True), ("pod", False)])
def test_a_job_is_queued_as_a_whole_where_kueue_is_configured_for_jobs(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, frameworks: str, waits: bool
) -> None:
    text = SAMPLES["indexed job in a queue"].text  # eight GPUs in four pods, of which three would fit
    found = codes(capsys, tmp_path, text, QUOTA + WHOLE + QUEUES + CONFIGURATION % frameworks)
    assert ("GF507" in found) is waits


def test_a_field_that_only_the_scheduler_reads_is_one_message(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    spread = "topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule, "
    spread += "labelSelector: {matchLabels: {app: 25%}}}]"
    workflow = f"""apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata: {{name: w}}
spec:
  entrypoint: a
  podSpecPatch: '{{{spread}}}'
  templates: [{{name: a, container: {{image: x, command: [x]}}}}]
"""
    (tmp_path / "cluster.yaml").write_text(QUOTA + WHOLE)
    (tmp_path / "w.yaml").write_text(workflow)
    where = ["--cluster", str(tmp_path / "cluster.yaml"), "--namespace", "team"]
    assert main(["check", str(tmp_path / "w.yaml"), *where]) == 2
    assert "GF736 Workflow w: a field of its pods cannot be read" in capsys.readouterr().err


def test_hints_are_in_the_words_of_the_kind_and_not_of_pipelines(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "cluster.yaml").write_text(QUOTA.replace('"10"', '"3"') + WHOLE)
    (tmp_path / "theirs.yaml").write_text(SAMPLES["deployment"].text + "---\n" + SAMPLES["daemon set"].text)
    where = ["--cluster", str(tmp_path / "cluster.yaml"), "--namespace", "team"]
    main(["check", str(tmp_path / "theirs.yaml"), *where])
    said = capsys.readouterr().out
    assert "its 4 pods together ask for 4 of pods" in said
    assert "a document that bounds the number would settle it" in said
    assert "--engine" not in said and "fan-out" not in said and "parallel" not in said
