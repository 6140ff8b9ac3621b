"""What readers and importers read by one function: loops that count, amounts of containers, accelerators.

Tests gpuflow/formats/argo.py and gpuflow/formats/kfp.py.
"""

from __future__ import annotations

from typing import Any

import pytest

from gpuflow.formats.argo import sequence_of
from gpuflow.formats.documents import Document
from gpuflow.formats.kfp import Message, accelerator_of, amounts_of


@pytest.mark.parametrize(
    ("numbers", "counted"),
    [
        ({"count": 3}, [0, 1, 2]),
        ({"start": 5, "count": 2}, [5, 6]),
        ({"start": 2, "end": 4}, [2, 3, 4]),
        ({"start": 4, "end": 2}, [4, 3, 2]),
        ({"end": 1, "count": 9}, [0, 1]),
        ({"count": 0}, []),
        ({"start": 7}, None),
    ],
)
def test_a_sequence_counts_up_or_down(numbers: dict[str, int], counted: list[int] | None) -> None:
    found = sequence_of(numbers)
    assert (None if found is None else list(found)) == counted


def message(value: dict[str, Any]) -> Message:
    return Message(Document(value, "x.yaml", "PipelineSpec", "kfp", 0), (), value)


@pytest.mark.parametrize(
    ("resources", "amounts"),
    [
        ({"resourceMemoryLimit": "2Gi", "memoryLimit": 9}, [("limits", "memory", "2Gi")]),
        ({"memory_limit": 1.5, "cpuRequest": 2}, [("limits", "memory", "1.5G"), ("requests", "cpu", "2")]),
        ({"memoryRequest": 12345678.5}, [("requests", "memory", "12345678.5G")]),
        ({"cpuLimit": 0}, []),
    ],
)
def test_an_amount_is_a_text_or_the_number_of_an_older_document(
    resources: dict[str, Any], amounts: list[tuple[str, str, str]]
) -> None:
    found = [(side, resource, text) for side, resource, _, text, _ in amounts_of(message(resources))]
    assert found == amounts


@pytest.mark.parametrize(
    ("accelerator", "found"),
    [
        ({"resourceType": "nvidia.com/gpu", "resourceCount": "2"}, ("nvidia.com/gpu", "2")),
        ({"type": "nvidia.com/gpu", "count": "1"}, ("nvidia.com/gpu", "1")),
        ({"type": "nvidia.com/gpu", "count": -1}, ("nvidia.com/gpu", "")),
        ({}, ("", "")),
    ],
)
def test_an_accelerator_is_a_resource_and_how_many(accelerator: dict[str, Any], found: tuple[str, str]) -> None:
    assert accelerator_of(message({"accelerator": accelerator})) == found
