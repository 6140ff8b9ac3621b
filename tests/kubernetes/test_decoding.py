"""Manifests decoded by types: msgspec and the reader of the same types give the same, and the reader's words count.

Tests gpuflow/kubernetes/objects.py and gpuflow/cluster/kueue_objects.py.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import ValidationError, convert
from msgspec.structs import fields

from gpuflow.checker.dra.objects import CounterSet, CounterUse, Device
from gpuflow.cluster.kueue_objects import ClusterQueueSpec, CohortSpec, LocalQueueSpec
from gpuflow.core import yaml_tree
from gpuflow.kubernetes import objects
from gpuflow.kubernetes.objects import Object, decode, read_as
from gpuflow.kubernetes.resources import BadField
from gpuflow.quantity import Quantity

TYPES: tuple[type[Object], ...] = (
    objects.Node, objects.BoundPod, objects.PodParts, objects.PodTemplate, objects.ResourceQuotaSpec,
    objects.ResourceQuotaStatus, objects.LimitRangeSpec, ClusterQueueSpec, CohortSpec, LocalQueueSpec,
)  # fmt: skip
WORDS = ("", "1", "-1", "0.5", "Never", "Any", "None", "a", "\ud800")
SCALARS: list[Any] = [None, True, 0, -1, 10**30, 0.5, yaml_tree.Int(4), yaml_tree.Float(0.5), *WORDS]


def trees() -> st.SearchStrategy[Any]:
    """Values such as manifests have, under names that types have, and a few that fit nowhere."""
    names = sorted({each.encode_name for kind in EVERY for each in fields(kind)})
    keys = st.one_of(st.sampled_from(names), st.sampled_from(["x", "cpu", "\ud800", 5]))
    return st.recursive(
        st.sampled_from(SCALARS),
        lambda inner: st.one_of(
            st.lists(inner, max_size=2), st.dictionaries(keys, inner, max_size=4), st.tuples(inner)
        ),
        max_leaves=12,
    )


def below(kind: type[Object]) -> set[type[Object]]:
    """A type and those of its fields."""
    found = {kind}
    for part in kind.__subclasses__():
        found |= below(part)
    return found


EVERY = below(Object)


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(sorted(EVERY, key=lambda kind: f"{kind.__module__}.{kind.__name__}")), st.data())
def test_what_the_fast_path_accepts_the_reader_reads_the_same(kind: type[Object], data: st.DataObject) -> None:
    names = [each.encode_name for each in fields(kind)]
    body = data.draw(st.dictionaries(st.sampled_from([*names, "x"]), trees(), max_size=4))
    try:
        fast = convert(body, kind, dec_hook=objects._hook)
    except (ValidationError, ValueError, RecursionError):
        return
    assert read_as(kind, body, "") == fast


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (CounterSet, {"counters": {"memory": 0}}),
        (CounterUse, {"counters": {"memory": "40Gi"}}),
        (Device, {"attributes": {"index": ["int", 0]}}),
        (Device, {"capacity": {"memory": ["40Gi", None]}}),
    ],
)
def test_a_map_with_a_reader_of_its_own_is_never_read_around_it(kind: type[Object], body: dict[str, Any]) -> None:
    with pytest.raises(BadField):
        decode(kind, body, "")


@pytest.mark.parametrize("kind", TYPES)
def test_null_is_absent(kind: type[Object]) -> None:
    assert decode(kind, {each.encode_name: None for each in fields(kind)}, "") == kind()
    assert decode(kind, None, "") == kind()


def test_a_null_item_is_an_empty_map() -> None:
    assert decode(objects.PodParts, {"containers": [None]}, "spec").containers == (objects.Container(),)


def test_an_empty_word_is_the_default() -> None:
    assert (
        decode(ClusterQueueSpec, {"stopPolicy": "", "preemption": {"reclaimWithinCohort": ""}}, "")
        == ClusterQueueSpec()
    )


def refused(kind: type[Object], body: Any, where: str = "spec") -> str:
    with pytest.raises(BadField) as refusal:
        decode(kind, body, where)
    return str(refusal.value)


def test_the_path_names_key_and_number() -> None:
    wrong = {"containers": [{"name": "a"}, {"resources": {"limits": {"cpu": "much"}}}]}
    assert refused(objects.PodParts, wrong).startswith("spec.containers[1].resources.limits[cpu]: 'much': ")
    assert refused(objects.Node, {"metadata": {"labels": {"a": 1}}}, "") == (
        "metadata.labels[a]: a label is a string, not 1"
    )
    groups = {"resourceGroups": [{"flavors": [{"name": "f", "resources": [{"name": "cpu", "nominalQuota": "-1"}]}]}]}
    assert refused(ClusterQueueSpec, groups, "q: spec") == (
        "q: spec.resourceGroups[0].flavors[f].resources[cpu].nominalQuota: -1 is negative; quota is zero or more"
    )


def test_a_word_that_is_none_of_its_field_is_refused_with_those_that_are() -> None:
    assert refused(LocalQueueSpec, {"stopPolicy": "no"}) == (
        "spec.stopPolicy: 'no' is not one of None, Hold, HoldAndDrain"
    )


def test_a_number_of_yaml_is_a_quantity() -> None:
    amounts = {"cpu": yaml_tree.Float(0.5), "memory": yaml_tree.Int(4)}
    found = decode(objects.Resources, {"requests": amounts}, "").requests
    assert found == {"cpu": Quantity("500m"), "memory": Quantity("4")}


def test_true_is_no_amount_although_it_equals_one() -> None:
    decode(objects.Resources, {"requests": {"cpu": 1}}, "resources")
    assert refused(objects.Resources, {"requests": {"cpu": True}}, "resources").startswith("resources.requests[cpu]: ")


def test_a_lone_surrogate_is_no_crash() -> None:
    assert decode(objects.Node, {"metadata": {"labels": {"\ud800": "\ud800"}}}, "").metadata.labels == {
        "\ud800": "\ud800"
    }


def test_another_mapping_is_read() -> None:
    body = MappingProxyType({"items": 1, "metadata": MappingProxyType({"name": "n"})})
    assert decode(objects.Node, body, "").metadata.name == "n"


def test_no_field_has_a_name_that_mappings_have() -> None:
    """msgspec asks a Mapping that is no dict for attributes."""
    taken = {each.encode_name for kind in EVERY for each in fields(kind)} & set(dir(dict))
    assert taken <= {"values"}  # of selectors, which no type reads
