"""The fields of manifests, as they stand: a wider list lets more into a snapshot, and is read by a person."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from gpuflow.cluster.fields import FIELDS, SHAPES
from gpuflow.cluster.kinds import SOURCES


def sorted_keys(tree: object) -> object:
    if isinstance(tree, dict):
        return {key: sorted_keys(tree[key]) for key in sorted(tree)}
    return [sorted_keys(each) for each in tree] if isinstance(tree, list) else tree


def test_the_fields_that_are_known_and_kept_are_those_on_file(golden: Callable[[Path, str], None]) -> None:
    text = json.dumps({"known": FIELDS, "kept": sorted_keys(SHAPES)}, indent=1) + "\n"
    golden(Path(__file__).parent / "fields.json", text)


def test_every_kind_that_is_read_live_has_its_fields() -> None:
    assert {source.kind for source in SOURCES} <= set(SHAPES)
