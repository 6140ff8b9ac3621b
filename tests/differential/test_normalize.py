"""Kubernetes' own reader of YAML reads the same from a file and from what `gpuflow normalize` makes of it."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuflow.core import yaml_tree
from gpuflow.core.errors import GpuflowError
from gpuflow.importing.normalize import normalize
from tests.differential.conftest import Ask
from tests.differential.oracle import Oracle
from tests.importing.test_normalize import corpus_files, trees

pytestmark = pytest.mark.go


@pytest.fixture
def reader(oracle: Ask) -> Oracle:
    """Kubernetes' reader."""
    return oracle("argo", "yaml")


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(found=st.lists(trees, min_size=20, max_size=40), flow=st.booleans())
def test_any_tree_is_the_same_to_kubernetes(reader: Oracle, found: list[object], flow: bool) -> None:
    texts = [yaml.safe_dump(tree, default_flow_style=flow, allow_unicode=True) for tree in found]
    texts = [text for text in texts if _is_read(text)]
    _compare(reader, texts)


def test_every_document_of_the_corpora_is_the_same_to_kubernetes(reader: Oracle, corpora: Path) -> None:
    texts = []
    for path in corpus_files(corpora):
        for part in path.read_text(encoding="utf-8").split("\n---"):
            if len(part) < 200_000 and _is_read(part):
                texts.append(part)
    assert len(texts) > 300
    _compare(reader, texts)


def _is_read(text: str) -> bool:
    try:
        return len(yaml_tree.parse_all(text, "x")) == 1
    except GpuflowError:
        return False


def _compare(reader: Oracle, texts: list[str]) -> None:
    before = list(reader.ask(texts))
    after = list(reader.ask([normalize(text, "x") for text in texts]))
    for text, one, other in zip(texts, before, after, strict=True):
        assert one.get("refused") or one == other, text
