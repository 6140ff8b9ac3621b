"""What the quick reader reads is what the YAML parser reads; what it does not understand it leaves alone.

Tests gpuflow/cluster/block_yaml.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuflow.cluster import block_yaml, manifests, read_cluster
from gpuflow.core import yaml_tree
from gpuflow.core.errors import GpuflowError

PODS = """apiVersion: v1
items:
- apiVersion: v1
  kind: Pod
  metadata:
    annotations:
      note: |
        first line
          indented

        last: line
      short: |-
        no break
    creationTimestamp: null
    labels:
      app.kubernetes.io/name: "quoted"
      f:x: 'it''s'
    name: a
    namespace: n
  spec:
    containers:
    - args: []
      command:
      - -m
      - 1e-3
      name: main
      resources: {}
  status:
    phase: Running
- apiVersion: v1
  kind: Pod
  metadata: {name: b, namespace: n}
kind: List
metadata:
  resourceVersion: ""
"""
BLOCK = PODS.replace("{name: b, namespace: n}", "\n    name: b\n    namespace: n").replace(
    "metadata: \n", "metadata:\n"
)

words = st.sampled_from(
    ["a", "true", "null", "~", "8", "'8'", "1e3", "0x1f", ".5", "on", "", "it's", 'say "no"', "a: b", "a #b", "#c", "-",
     "- x", "a:", "*x", "&y", "!z", "{}", "[]", "|", ">-", "é", "\u2028", "two words", "x" * 100, "a\nb\n", "a\n\nb",
     " lead", "trail ", "\t", "?", "? a", "%a", "@b", "`c", "=", "<<", "2024-01-01", "-m", "--flag", "a,b", "{a", "a]"]
)  # fmt: skip
values = st.recursive(
    words | st.integers() | st.booleans() | st.none() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words | st.text(max_size=5), inner, max_size=3),
    max_leaves=12,
)


def by_parser(text: str) -> list[Any] | None:
    try:
        return [document for document in yaml_tree.parse_all(text, "x.yaml") if document is not None]
    except GpuflowError:
        return None


def agrees(text: str) -> bool:
    """Whether the quick reader takes the text; what it takes must be right."""
    found = block_yaml.read(text)
    if found is None:
        return False
    expected = by_parser(text)
    assert found == expected
    assert repr(found) == repr([_bare(each) for each in expected or ()])
    return True


def _bare(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _bare(each) for key, each in value.items()}
    return [_bare(each) for each in value] if isinstance(value, list) else value


def test_it_reads_what_kubectl_writes() -> None:
    assert agrees(BLOCK)
    assert not agrees(PODS)  # a flow mapping with something in it is for the parser
    assert agrees(f"---\n{BLOCK}---\n{BLOCK}")


def test_an_object_knows_its_line() -> None:
    (document,) = block_yaml.read(BLOCK) or ()
    (first, second) = document["items"]
    (by_tree,) = yaml_tree.parse_all(BLOCK, "x.yaml")
    assert [each.spot for each in (first, second)] == [each.spot for each in by_tree["items"]]


@given(st.dictionaries(words, values, max_size=4), st.booleans(), st.booleans())
@settings(deadline=None, max_examples=300)
def test_whatever_a_dumper_writes_is_read_the_same_or_left_alone(
    document: dict[str, Any], sort: bool, unicode: bool
) -> None:
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    for width in (80, 100_000):
        text = yaml.dump(document, Dumper=dumper, sort_keys=sort, allow_unicode=unicode, width=width)
        agrees(text)


@given(st.data())
@settings(deadline=None, max_examples=500)
def test_text_changed_at_random_is_read_the_same_or_left_alone(data: st.DataObject) -> None:
    text = BLOCK
    for _ in range(data.draw(st.integers(1, 4))):
        at, width = data.draw(st.integers(0, len(text))), data.draw(st.integers(0, 3))
        put = data.draw(
            st.sampled_from(["", " ", "  ", "\n", "- ", ":", ": ", "#", "'", '"', "|", "-", "a", "{}", "\t"])
        )
        text = text[:at] + put + text[at + width :]
    agrees(text)


@pytest.mark.parametrize("size", [1, 10**9])
def test_a_large_file_gives_the_same_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    (tmp_path / "pods.yaml").write_text(BLOCK)
    monkeypatch.setattr(manifests, "QUICK_YAML", size)
    cluster = read_cluster(str(tmp_path))
    assert [(each.name, each.where.line) for each in cluster.objects] == [("a", 3), ("b", 30)]


def test_public_manifests_are_read_the_same_or_left_alone(corpora: Path) -> None:
    taken = 0
    for file in sorted(corpora.rglob("*.yaml"))[:1500]:
        try:
            text = file.read_text()
        except (OSError, UnicodeDecodeError):
            continue
        if len(text) < 50_000:
            taken += agrees(text)
    assert taken > 20
