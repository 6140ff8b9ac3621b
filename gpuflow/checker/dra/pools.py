"""The pools of devices that a node can reach: which slices count, and whether a pool is whole.

Mirrors k8s.io/dynamic-resource-allocation/structured/internal/incubating.GatherPools, buildPool and
checkSlicesInPool, Kubernetes v1.36.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from gpuflow.checker.dra.objects import Counters, Slice
from gpuflow.kubernetes.labels import Labels
from gpuflow.work import spend

PoolId = tuple[str, str]
"""Driver and name."""


@dataclass(frozen=True, slots=True)
class Pool:
    driver: str
    name: str
    is_incomplete: bool = False
    """Slices of it are still to come."""
    is_invalid: bool = False
    """Its slices contradict each other."""
    slices: tuple[Slice, ...] = ()
    """Those with devices for the node."""
    elsewhere: tuple[Slice, ...] = ()
    """Those for other nodes: what is in use there may count here too."""
    counters: Mapping[str, Counters] = field(default_factory=dict)


class SliceIndex:
    """All slices of a cluster, by node and by pool."""

    def __init__(self, slices: Iterable[Slice]) -> None:
        self.slices = tuple(slices)
        self._on_node: dict[str, list[Slice]] = {}
        self._shared: list[Slice] = []
        self._pools: dict[PoolId, list[Slice]] = {}
        self._found: dict[str, list[Pool]] = {}
        for each in self.slices:
            self._pools.setdefault((each.driver, each.pool), []).append(each)
            if not each.nodes.node_name or each.counters:
                self._shared.append(each)
            else:
                self._on_node.setdefault(each.nodes.node_name, []).append(each)

    def pools(self, name: str, labels: Labels) -> list[Pool]:
        """The pools of a node, in the order in which devices are tried. `TooLarge` where so many nodes reach so many
        devices that this is not worked out."""
        if name not in self._found:
            self._found[name] = self._find(name, labels)
        return self._found[name]

    def _find(self, name: str, labels: Labels) -> list[Pool]:
        found: dict[PoolId, list[Slice]] = {}
        spend("devices", len(self._shared))
        for each in (*self._on_node.get(name, ()), *self._shared):
            if _is_relevant(each, name, labels):
                _add(found, each)
        spend("devices", sum(len(each.devices) for id in found for each in self._pools[id]))
        built = [pool for id, members in found.items() for pool in self._built(id, members)]
        return sorted(built, key=lambda pool: (_has_binding_conditions(pool), pool.driver, pool.name))

    def _built(self, id: PoolId, members: Sequence[Slice]) -> Iterator[Pool]:
        generation, count = members[0].generation, members[0].count
        everywhere: Sequence[Slice] = members
        if len(members) != count:
            siblings = self._pools[id]
            if any(each.generation > generation for each in siblings):
                return  # the driver is replacing it
            everywhere = [each for each in siblings if each.generation == generation]
            if len(everywhere) != count:
                yield Pool(*id, is_incomplete=True)
                return
        yield _build(id, members, everywhere)


def _is_relevant(each: Slice, name: str, labels: Labels) -> bool:
    if each.counters:
        return True
    if each.nodes.is_set:
        return each.nodes.matches(name, labels)
    return each.is_per_device and any(device.nodes.matches(name, labels) for device in each.devices)


def _add(pools: dict[PoolId, list[Slice]], each: Slice) -> None:
    """Only the newest generation counts."""
    members = pools.setdefault((each.driver, each.pool), [])
    if members and each.generation > members[0].generation:
        members.clear()
    if not members or each.generation == members[0].generation:
        members.append(each)


def _build(id: PoolId, members: Iterable[Slice], everywhere: Sequence[Slice]) -> Pool:
    own = sorted(members, key=lambda each: each.name)
    with_devices = tuple(each for each in own if not each.counters)
    names = [device.name for each in with_devices for device in each.devices]
    sets = [entry for each in own for entry in each.counters]
    counters = dict(sets)
    here = {each.name for each in own}
    elsewhere = tuple(each for each in everywhere if each.name not in here)
    if len(names) != len(set(names)) or len(sets) != len(counters) or not _consume_what_is_there(counters, everywhere):
        return Pool(*id, is_invalid=True)
    return Pool(*id, slices=with_devices, elsewhere=elsewhere, counters=counters)


def _consume_what_is_there(counters: Mapping[str, Counters], slices: Iterable[Slice]) -> bool:
    return all(
        name in counters and counters[name].keys() >= consumed.keys()
        for each in slices
        for device in each.devices
        for name, consumed in device.consumes
    )


def _has_binding_conditions(pool: Pool) -> bool:
    return any(device.has_binding_conditions for each in pool.slices for device in each.devices)
