"""Objects of Kubernetes are read as Kubernetes reads them; pipelines of ours and those of Kubeflow are YAML 1.2.

Tests gpuflow/kubernetes/yaml_scalars.py, gpuflow/formats/documents.py and gpuflow/demands/peaks.py.
"""

from __future__ import annotations

from pathlib import Path

from gpuflow.demands.peaks import peaks_of
from gpuflow.formats.documents import read_documents, silenced_in
from gpuflow.graph import Dag, Leaf
from gpuflow.kubernetes.yaml_scalars import parse_manifests
from gpuflow.quantity import Quantity

JOB = """\
apiVersion: batch/v1
kind: Job
metadata: {name: a, labels: {on: "yes"}}
spec: {suspend: yes, parallelism: 010, completions: 1_0, ratio: 1.10, backoffLimit: 1e1, at: 1:30}
"""
OURS = "apiVersion: gpuflow/v1\nkind: Pipeline\nsuspend: yes\nparallelism: 010\n"
KUBEFLOW = "pipelineInfo: {name: p}\nroot: {dag: {}, on: yes}\n"


def test_plain_words_and_numbers_are_those_of_kubernetes(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(JOB)
    [job] = read_documents(str(path))
    spec = job.tree["spec"]
    assert spec["suspend"] is True
    assert (spec["parallelism"], spec["completions"], spec["backoffLimit"]) == (8, 10, 10)
    assert (spec["ratio"].text, spec["at"]) == ("1.1", "1:30")
    assert job.tree["metadata"]["labels"] == {"true": "yes"}
    where = job.where("spec", "parallelism")
    assert (where.line, where.column) == (4, JOB.splitlines()[3].index("010") + 1)


def test_other_documents_of_the_same_stream_keep_yaml_1_2() -> None:
    job, ours, kubeflow = parse_manifests("---\n".join((JOB, OURS, KUBEFLOW)), "x")
    assert job["spec"]["suspend"] is True
    assert (ours["suspend"], ours["parallelism"]) == ("yes", 10)
    assert kubeflow["root"]["on"] == "yes"


def test_a_large_file_reads_the_same(tmp_path: Path) -> None:
    head = "apiVersion: batch/v1\nkind: Job\nspec:\n  suspend: off\n  parallelism: 010\n"
    path = tmp_path / "large.yaml"
    path.write_text(head + "  filler:\n" + "".join(f"  - word{number}\n" for number in range(150_000)))
    [job] = read_documents(str(path))
    assert (job.tree["spec"]["suspend"], job.tree["spec"]["parallelism"]) == (False, 8)


def test_only_comments_of_the_file_silence() -> None:
    text = """\
# gpuflow: silence GF761
a: |  # gpuflow: silence GF762
  # gpuflow: silence GF763
  x
# gpuflow: silence GF764
b: "x # gpuflow: silence GF765"
c: 'x
  # gpuflow: silence GF766'
d: >-
  # gpuflow: silence GF767

e: é  # gpuflow: silence GF768
"""
    assert [each.code for each in silenced_in(text)] == ["GF761", "GF762", "GF764", "GF768"]


def test_conditions_around_each_other_exclude_nothing() -> None:
    one = Quantity.from_nano(10**9)
    inner = Dag({"b": Leaf("a.b", {}), "c": Leaf("a.c", {})})
    usages = {name: {"pods": one} for name in ("a.b", "a.c", "d")}
    nested = peaks_of(Dag({"a": inner}), usages, {"a": False, "a.b": False})["pods"]
    assert (nested.bound, str(nested.value)) == ("exact", "2")
    beside = peaks_of(Dag({"a": inner}), usages, {"a.b": False, "a.c": False})["pods"]
    assert beside.bound == "at-most"
    apart = peaks_of(Dag({"a": inner, "d": Leaf("d", {})}), usages, {"a": False, "a.b": False, "d": False})["pods"]
    assert apart.bound == "at-most"
