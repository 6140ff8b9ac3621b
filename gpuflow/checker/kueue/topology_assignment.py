"""The places of an admitted workload, as its status lists them.

Mirrors sigs.k8s.io/kueue/pkg/util/tas.InternalSeqFrom, Kueue v0.19.2.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpuflow.kubernetes.admission.pod import read_integer, read_text
from gpuflow.resources import BadField, read_map, read_maps, read_texts


def read_assignment(value: object, where: str) -> Iterator[tuple[tuple[str, ...], int]]:
    """The values that name each domain, and its pods: of v1beta1, or packed as in v1beta2."""
    assignment = read_map(value, where)
    for domain in read_maps(assignment.get("domains"), f"{where}.domains"):
        yield tuple(read_texts(domain.get("values"), where)), read_integer(domain, "count", where) or 0
    for packed in read_maps(assignment.get("slices"), f"{where}.slices"):
        yield from _unpacked(packed, f"{where}.slices")


def _unpacked(packed: Mapping[str, Any], where: str) -> Iterator[tuple[tuple[str, ...], int]]:
    levels = read_maps(packed.get("valuesPerLevel"), f"{where}.valuesPerLevel")
    counts = read_map(packed.get("podCounts"), f"{where}.podCounts")
    for index in range(read_integer(packed, "domainCount", where) or 0):
        try:
            yield tuple(_value(level, index, where) for level in levels), _count(counts, index, where)
        except IndexError:
            raise BadField(where, f"domain {index + 1} has no value or no count") from None


def _value(level: Mapping[str, Any], index: int, where: str) -> str:
    universal = read_text(level, "universal", where)
    if universal is not None:
        return universal
    parts = read_map(level.get("individual"), f"{where}.individual")
    root = read_texts(parts.get("roots"), f"{where}.individual.roots")[index]
    return (read_text(parts, "prefix", where) or "") + root + (read_text(parts, "suffix", where) or "")


def _count(counts: Mapping[str, Any], index: int, where: str) -> int:
    universal = read_integer(counts, "universal", where)
    if universal is not None:
        return universal
    individual = counts.get("individual")
    if not isinstance(individual, list) or not all(isinstance(each, int) for each in individual):
        raise BadField(f"{where}.individual", f"must be a list of whole numbers, not {individual!r}")
    return int(individual[index])
