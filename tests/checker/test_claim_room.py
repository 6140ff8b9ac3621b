"""Existing claims of the cluster that hold less than what a step puts into them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.checker.test_verdict import checked

FILES = """
steps:
  make: {command: [x], outputs: {d: {type: directory, uri: 's3://b/d', size: 10Gi}}}
  read: {command: [x], volumes: {/v: {claim: c}}, inputs: {/v/d: {output: make.d}}%s}
"""


def claim(asked: str | None, got: str | None = None, volume: str | None = None) -> dict[str, Any]:
    spec: dict[str, Any] = {"accessModes": ["ReadWriteMany"], "storageClassName": "s"}
    spec |= {"resources": {"requests": {"storage": asked}}} if asked else {}
    spec |= {"volumeName": volume} if volume else {}
    status = {"status": {"phase": "Bound", "capacity": {"storage": got}}} if got else {}
    metadata = {"name": "c", "namespace": "ns"}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec, **status}


def disk(size: str) -> dict[str, Any]:
    spec = {"capacity": {"storage": size}, "accessModes": ["ReadWriteMany"], "storageClassName": "s"}
    spec |= {"claimRef": {"namespace": "ns", "name": "c"}}
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "pv"}, "spec": spec}


def said(*manifests: dict[str, Any], more: str = "") -> list[tuple[str, str]]:
    report = checked(FILES % more, *manifests, engine="argo")
    return [(each.message, each.severity) for each in report.findings if each.code == "GF360"]


def small(holds: str, step: str = "read") -> list[tuple[str, str]]:
    return [(f'step "{step}": the claim "c" holds {holds}, and the inputs and outputs there take 10Gi', "warning")]


@pytest.mark.parametrize(
    ("manifests", "holds"),
    [
        ([claim("5Gi")], "5Gi"),
        ([claim("10Gi")], None),
        ([claim("5Gi", got="20Gi")], None),
        ([claim("5Gi", got="8Gi")], "8Gi"),
        ([claim("5Gi", volume="pv"), disk("20Gi")], None),
        ([claim("5Gi", volume="pv"), disk("6Gi")], "6Gi"),
        ([claim(None)], None),
        ([], None),
    ],
)
def test_files_are_compared_with_what_the_claim_holds(manifests: list[dict[str, Any]], holds: str | None) -> None:
    assert said(*manifests) == ([] if holds is None else small(holds))


def test_a_gang_is_named_once() -> None:
    assert said(claim("5Gi"), more=", gang: {workers: 2}") == small("5Gi")
