"""How much of a file is read: what takes too much memory is refused with its size, and a large real cluster is read.

Tests gpuflow/cluster/manifests.py and gpuflow/core/yaml_tree.py.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuflow.cluster import manifests
from gpuflow.core import yaml_tree
from gpuflow.core.errors import GpuflowError


def pods(count: int) -> list[dict[str, Any]]:
    return [
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"p{number}", "namespace": "a"}, "spec": {}}
        for number in range(count)
    ]


def codes(path: Path) -> list[str]:
    with pytest.raises(GpuflowError) as caught:
        manifests.read_cluster(str(path))
    return [each.code for each in caught.value.findings]


@pytest.mark.parametrize("text", ["x: [1, 1, 1, 1, 1, 1]\n", "x: [{}, {}, {}]\n", "a: 1\nb: 1\nc: 1\n", "- 1\n" * 9])
def test_yaml_with_too_many_values_is_refused_where_they_are_too_many(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(yaml_tree.parse_all(text, "a.yaml")) == 1
    monkeypatch.setattr(yaml_tree, "MAX_VALUES", 8)
    with pytest.raises(GpuflowError) as caught:
        yaml_tree.parse_all(text, "a.yaml")
    (found,) = caught.value.findings
    assert (found.code, "more than 8 keys and values" in found.message) == ("GF102", True)
    assert found.where.file == "a.yaml" and found.where.line


def test_a_value_less_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    # Beginnings and ends of the stream, the document and the list, and three values.
    monkeypatch.setattr(yaml_tree, "MAX_VALUES", 9)
    assert yaml_tree.parse_all("[1, 2, 3]\n", "a.yaml") == [[1, 2, 3]]
    with pytest.raises(GpuflowError):
        yaml_tree.parse_all("[1, 2, 3, 4]\n", "a.yaml")


@pytest.mark.parametrize("value", ["1", "{}", "[]", '{"a":"b"}'])
def test_json_is_refused_by_what_its_values_take(value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifests, "MOST_JSON_MEMORY", 32 * 1024 * 1024)
    path = tmp_path / "cluster.json"
    path.write_text(f'{{"kind": "List", "items": [{",".join([value] * 600_000)}]}}', encoding="utf-8")
    assert path.stat().st_size > manifests.QUICK_JSON
    assert codes(path) == ["GF102"]


def test_a_text_takes_what_it_weighs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large files with few values are read: the bound is on what values take, not on bytes alone."""
    monkeypatch.setattr(manifests, "MOST_JSON_MEMORY", 32 * 1024 * 1024)
    held = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"a": "x" * 8 * 1024 * 1024}}
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps(held), encoding="utf-8")
    assert len(manifests.read_cluster(str(path)).objects) == 1


def test_objects_that_are_no_manifests_are_told_a_thousand_times_at_most(tmp_path: Path) -> None:
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": [{}] * 5000}), encoding="utf-8")
    assert len(codes(path)) == manifests.MOST_FAULTS + 1


@pytest.mark.parametrize("name", ["cluster.json", "cluster.yaml"])
def test_a_cluster_of_25_000_objects_is_read(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    if name.endswith("json"):
        path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": pods(25_000)}), encoding="utf-8")
    else:
        one = yaml.safe_dump({"apiVersion": "v1", "items": pods(1)}, sort_keys=False)
        head, _, item = one.partition("items:\n")
        items = "".join(item.replace("p0", f"p{number}") for number in range(25_000))
        path.write_text(f"{head}items:\n{items}kind: List\n", encoding="utf-8")
    assert len(manifests.read_cluster(str(path)).objects) == 25_000


def test_many_merges_are_read_one_by_one() -> None:
    """Each once: what was merged before is not copied for the next."""
    (found,) = yaml_tree.parse_all("m: &m {a: 1}\nx:\n" + "  <<: *m\n" * 50_000, "a.yaml")
    assert found["x"] == {"a": 1}
