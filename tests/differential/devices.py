"""Claims for devices, and the devices of a few nodes: NVIDIA's GPUs and MIG partitions, and drivers of all kinds."""

from __future__ import annotations

from typing import Any

from tests.differential.draw import Draw, without_none
from tests.differential.pods import Manifest

GPU = "gpu.nvidia.com"
ZONES = ("a", "b")
PRODUCTS = {
    "NVIDIA A100-SXM4-80GB": ("Ampere", "8.0.0", "80Gi", "81559Mi"),
    "NVIDIA H100 80GB HBM3": ("Hopper", "9.0.0", "81559Mi", "81559Mi"),
    "NVIDIA L4": ("Ada Lovelace", "8.9.0", "23034Mi", "23034Mi"),
}
PROFILES = {
    "1g.10gb": (1, 1, "9728Mi"),
    "2g.20gb": (2, 2, "19968Mi"),
    "3g.40gb": (3, 4, "40192Mi"),
    "7g.80gb": (7, 8, "80Gi"),
}
"""Compute slices, memory slices and memory of MIG profiles of an 80 GB board."""
PLACES = {"1g.10gb": (0, 1, 2, 3, 4, 5, 6), "2g.20gb": (0, 2, 4), "3g.40gb": (0, 4), "7g.80gb": (0,)}
CLASSES = {
    GPU: f"device.driver == '{GPU}' && device.attributes['{GPU}'].type == 'gpu'",
    "mig.nvidia.com": f"device.driver == '{GPU}' && device.attributes['{GPU}'].type == 'mig'",
}
FULL_GPU_SELECTORS = (
    f"device.attributes['{GPU}'].productName.startsWith('NVIDIA H')",
    f"device.attributes['{GPU}'].productName.lowerAscii().matches('^.*a100.*$')",
    f"device.attributes['{GPU}'].architecture in ['Hopper', 'Blackwell']",
    f"device.attributes['{GPU}'].cudaComputeCapability.compareTo(semver('8.9.0')) >= 0",
    f"device.attributes['{GPU}'].driverVersion.isGreaterThan(semver('570.0.0'))",
    f"device.capacity['{GPU}'].memory.compareTo(quantity('40Gi')) >= 0",
    f"device.capacity['{GPU}'].memory.isLessThan(quantity('40Gi'))",
    f"device.attributes['{GPU}'].uuid in ['GPU-n0-0', 'GPU-n1-1', 'GPU-n0-3']",
    f"cel.bind(a, device.attributes['{GPU}'], a.brand == 'Nvidia' && !(a.productName.contains('L4')))",
    f"device.attributes['{GPU}'].profile == '1g.10gb'",
    f"has(device.attributes['{GPU}'].parentUUID) || device.attributes['{GPU}'].type == 'gpu'",
)
MIG_SELECTORS = (
    *(f"device.attributes['{GPU}'].profile == '{profile}'" for profile in PROFILES),
    f"device.attributes['{GPU}'].profile in ['1g.10gb', '2g.20gb']",
    f"device.attributes['{GPU}'].profile.startsWith('3g') && device.attributes['{GPU}'].parentUUID.endsWith('-0')",
    f"device.capacity['{GPU}'].memory.compareTo(quantity('15Gi')) >= 0",
    f"device.attributes['{GPU}'].productName == 'NVIDIA A100-SXM4-80GB'",
)
TAINTS = (
    {"key": "gpu.nvidia.com/unhealthy", "effect": "NoExecute"},
    {"key": "maintenance", "value": "soon", "effect": "NoSchedule"},
    {"key": "note", "value": "x", "effect": "None"},
)
TOLERATIONS = (
    {"key": "gpu.nvidia.com/unhealthy", "operator": "Exists"},
    {"key": "maintenance", "operator": "Equal", "value": "soon", "effect": "NoSchedule"},
    {"key": "maintenance", "value": "later"},
    {"operator": "Exists", "effect": "NoExecute"},
    {"operator": "Exists"},
)
DRIVERS = ("dra.example.com", "nic.example.com")
ATTRIBUTES: dict[str, tuple[Manifest, ...]] = {
    "model": ({"string": "a"}, {"string": "b"}, {"string": "A-b"}, {"int": 3}),
    "index": ({"int": 0}, {"int": 1}, {"int": 2}, {"int": -5}),
    "fast": ({"bool": True}, {"bool": False}, {"string": "true"}),
    "firmware": ({"version": "1.2.3"}, {"version": "1.10.0"}, {"version": "2.0.0-rc.1"}, {"version": "2.0.0+b1"}),
    "resource.kubernetes.io/pcieRoot": ({"string": "pci0000:00"}, {"string": "pci0000:01"}),
    "numa": ({"int": 0}, {"int": 1}),
}
CAPACITIES = {"memory": ("10Gi", "20Gi", "40Gi", "1e10"), "cores": ("8", "16", "500m")}
UNJUDGED = (
    'device.attributes["dra.example.com"].?model.orValue("x") == "a"',
    'size(device.attributes["dra.example.com"]) > 2',
    'device.attributes["dra.example.com"].index + 1 == 2',
    '["a", "b"].exists(x, x == device.driver)',
)
"""Selectors that gpuflow does not evaluate."""


def case(draw: Draw) -> dict[str, Any]:
    """The claims of one pod, one to four nodes and their devices, and what is in use."""
    names = [f"n{index}" for index in range(draw.weighted({1: 3, 2: 3, 3: 2, 4: 1}))]
    nodes = [_node(draw, name) for name in names]
    family = draw.weighted({"full-gpu": 3, "mig": 3, "drivers": 5, "shares": 1})
    if family in ("full-gpu", "mig"):
        slices = [each for name in names for each in nvidia_slices(draw, name, mig=family == "mig")]
        classes = [_device_class(name, expression) for name, expression in CLASSES.items()]
        claims = draw.times({1: 6, 2: 2}, lambda index: _nvidia_claim(draw, f"c{index}", mig=family == "mig"))
    else:
        slices = _drivers(draw, names, shares=family == "shares")
        classes = [_device_class("any"), _device_class("dra", f'device.driver == "{DRIVERS[0]}"')]
        classes.append(_device_class("picky", _expression(draw, 2)))
        claims = draw.times({1: 6, 2: 2, 3: 0.5}, lambda index: _claim(draw, f"c{index}", shares=family == "shares"))
    return {
        "family": family,
        "claims": claims,
        "others": _others(draw, slices),
        "classes": classes,
        "slices": slices,
        "nodes": nodes,
    }


def _node(draw: Draw, name: str) -> Manifest:
    labels = {"kubernetes.io/hostname": name, "zone": draw.pick(ZONES)}
    if draw.chance(0.5):
        labels["rack"] = draw.pick(("r1", "r2"))
    return {"metadata": {"name": name, "labels": labels}}


def _device_class(name: str, *selectors: str) -> Manifest:
    return {"metadata": {"name": name}, "spec": {"selectors": [{"cel": {"expression": each}} for each in selectors]}}


def _slice(name: str, driver: str, pool: Manifest, **spec: Any) -> Manifest:
    return {"metadata": {"name": name}, "spec": {"driver": driver, "pool": pool, **without_none(**spec)}}


def _pool(name: str, count: int = 1, generation: int = 1) -> Manifest:
    return {"name": name, "generation": generation, "resourceSliceCount": count}


def _texts(**attributes: str) -> Manifest:
    return {name: {"string": value} for name, value in attributes.items()}


# NVIDIA's driver ------------------------------------------------------------------------------------------


def nvidia_slices(draw: Draw, node: str, *, mig: bool) -> list[Manifest]:
    """The slices of a node: whole GPUs, with MIG also the partitions that may be cut from them."""
    product = draw.pick(tuple(PRODUCTS) if not mig else tuple(PRODUCTS)[:2])
    boards = draw.number(1, 2 if mig else 8)
    version = draw.pick(("550.90.7", "575.57.8", "580.65.6"))
    devices = [_board(draw, node, index, product, version, counters=mig) for index in range(boards)]
    if not mig:
        return [_slice(f"{node}-gpu", GPU, _pool(node), nodeName=node, devices=devices)]
    sets = []
    for index in range(boards):
        counters = {f"memory-slice-{number}": {"value": "1"} for number in range(8)}
        sets.append({"name": f"gpu-{index}", "counters": {"compute": {"value": "7"}, **counters}})
        for profile in draw.some(tuple(PROFILES), 1):
            for place in draw.some(PLACES[profile], 1):
                devices.append(_partition(draw, node, index, product, version, profile, place))
    missing = draw.chance(0.04)
    pool = _pool(node, 3 if missing else 2)
    return [
        _slice(f"{node}-counters", GPU, pool, nodeName=node, sharedCounters=sets),
        _slice(f"{node}-gpu", GPU, pool, nodeName=node, devices=devices),
    ]


def _board(draw: Draw, node: str, index: int, product: str, version: str, *, counters: bool) -> Manifest:
    architecture, capability, memory, _ = PRODUCTS[product]
    attributes = _texts(type="gpu", uuid=f"GPU-{node}-{index}", productName=product, brand="Nvidia")
    attributes |= _texts(architecture=architecture)
    attributes |= {"cudaComputeCapability": {"version": capability}, "driverVersion": {"version": version}}
    attributes["resource.kubernetes.io/pcieRoot"] = {"string": f"pci0000:0{index // 2}"}
    everything = {f"memory-slice-{number}": {"value": "1"} for number in range(8)}
    return without_none(
        name=f"gpu-{index}",
        attributes=attributes,
        capacity={"memory": {"value": memory}},
        taints=[draw.pick(TAINTS)] if draw.chance(0.08) else None,
        consumesCounters=[{"counterSet": f"gpu-{index}", "counters": {"compute": {"value": "7"}, **everything}}]
        if counters
        else None,
    )


def _partition(draw: Draw, node: str, index: int, product: str, version: str, profile: str, place: int) -> Manifest:
    compute, memory_slices, memory = PROFILES[profile]
    attributes = _texts(type="mig", uuid=f"MIG-{node}-{index}-{profile}-{place}", parentUUID=f"GPU-{node}-{index}")
    attributes |= _texts(profile=profile, productName=product)
    attributes["driverVersion"] = {"version": version}
    counters = {f"memory-slice-{number}": {"value": "1"} for number in range(place, place + memory_slices)}
    return without_none(
        name=f"gpu-{index}-mig-{profile.replace('.', '-')}-{place}",
        attributes=attributes,
        capacity={"memory": {"value": memory}},
        consumesCounters=[{"counterSet": f"gpu-{index}", "counters": {"compute": {"value": str(compute)}, **counters}}],
        taints=[draw.pick(TAINTS)] if draw.chance(0.03) else None,
    )


def _nvidia_claim(draw: Draw, name: str, *, mig: bool) -> Manifest:
    def exact(partition: bool) -> Manifest:
        fitting = MIG_SELECTORS if partition else FULL_GPU_SELECTORS[:-2]
        selectors = [draw.pick(fitting)] if draw.chance(0.45) else []
        if not partition and draw.chance(0.03):
            selectors = [FULL_GPU_SELECTORS[-2]]  # a GPU has no profile: an error
        every = draw.chance(0.1)
        return without_none(
            deviceClassName="mig.nvidia.com" if partition else GPU,
            selectors=[{"cel": {"expression": each}} for each in selectors] or None,
            allocationMode="All" if every else None,
            count=None if every else draw.weighted({1: 8, 2: 3, 3: 1, 4: 1, 8: 0.5}),
            tolerations=draw.some(TOLERATIONS, 1, 2) if draw.chance(0.15) else None,
        )

    def request(index: int) -> Manifest:
        if draw.chance(0.2):
            given = [{"name": f"s{number}", **exact(mig and draw.chance(0.6))} for number in range(draw.number(1, 3))]
            return {"name": f"r{index}", "firstAvailable": given}
        return {"name": f"r{index}", "exactly": exact(mig and draw.chance(0.8))}

    requests = draw.times({1: 7, 2: 2, 3: 0.5}, request)
    return _claimed(
        draw, name, requests, (f"{GPU}/parentUUID", f"{GPU}/productName", "resource.kubernetes.io/pcieRoot")
    )


def _claimed(draw: Draw, name: str, requests: list[Manifest], attributes: tuple[str, ...]) -> Manifest:
    """A claim with constraints over some of its requests."""

    def constraint(_: int) -> Manifest:
        kind = draw.weighted({"matchAttribute": 4, "distinctAttribute": 1})
        named = draw.some([each["name"] for each in requests], 1) if draw.chance(0.4) else None
        return without_none(**{kind: draw.pick(attributes)}, requests=named)

    constraints = draw.times({0: 6, 1: 3, 2: 0.5}, constraint)
    spec = {"devices": without_none(requests=requests, constraints=constraints or None)}
    return {"metadata": {"name": name, "namespace": "ns"}, "spec": spec}


# Any driver -----------------------------------------------------------------------------------------------


def _drivers(draw: Draw, names: list[str], *, shares: bool) -> list[Manifest]:
    slices: list[Manifest] = []
    for number in range(draw.number(2, 5)):
        driver = draw.pick(DRIVERS)
        pool, generation = f"p{number}", draw.number(0, 2)
        where = draw.weighted({"node": 5, "all": 2, "selector": 3, "device": 2})
        parts = draw.weighted({1: 5, 2: 3, 3: 1})
        sets = _counters(draw) if draw.chance(0.3) else None
        total = parts + (1 if sets else 0) + (1 if draw.chance(0.06) else 0)
        home = draw.pick(names)
        for part in range(parts):
            prefix = "d" if draw.chance(0.02) else f"d{part}"  # the same names twice: an invalid pool
            devices = [
                _device(draw, f"{prefix}-{index}", names, sets, per_device=where == "device", shares=shares)
                for index in range(draw.number(1, 5))
            ]
            slices.append(
                _slice(
                    f"s{number}-{part}",
                    driver,
                    _pool(pool, total, generation),
                    devices=devices,
                    **_where(draw, where, home, names),
                )
            )
        if sets:
            spec = _where(draw, where, home, names)
            slices.append(
                _slice(f"s{number}-counters", driver, _pool(pool, total, generation), sharedCounters=sets, **spec)
            )
        if draw.chance(0.08):  # an older or newer generation beside it
            old = _pool(pool, 1, max(generation + draw.pick((-1, 1)), 0))
            devices = [_device(draw, "old-0", names, None, per_device=False, shares=shares)]
            slices.append(_slice(f"s{number}-old", driver, old, devices=devices, nodeName=draw.pick(names)))
    return slices


def _where(draw: Draw, where: str, home: str, names: list[str]) -> Manifest:
    if where == "device":
        return {"perDeviceNodeSelection": True}
    return {"allNodes": True} if where == "all" else _selected(draw) if where == "selector" else {"nodeName": home}


def _selected(draw: Draw) -> Manifest:
    expressions = draw.pick(
        (
            [{"key": "zone", "operator": "In", "values": ["a"]}],
            [{"key": "zone", "operator": "NotIn", "values": ["a"]}],
            [{"key": "rack", "operator": "Exists"}],
            [{"key": "rack", "operator": "In", "values": ["r1"]}, {"key": "zone", "operator": "Exists"}],
        )
    )
    return {"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": expressions}]}}


def _counters(draw: Draw) -> list[Manifest]:
    return [
        {
            "name": f"set{index}",
            "counters": {"units": {"value": draw.pick(("2", "4", "1500m"))}, "memory": {"value": "20Gi"}},
        }
        for index in range(draw.number(1, 2))
    ]


def _device(
    draw: Draw, name: str, names: list[str], sets: list[Manifest] | None, *, per_device: bool, shares: bool
) -> Manifest:
    attributes = {key: draw.pick(values) for key, values in ATTRIBUTES.items() if draw.chance(0.85)}
    consumes = None
    if sets and draw.chance(0.8):
        units = {"units": {"value": draw.pick(("1", "2", "500m"))}, "memory": {"value": draw.pick(("5Gi", "10Gi"))}}
        chosen = draw.some(sets, 1)
        consumes = [
            {"counterSet": each["name"], "counters": dict(draw.some(list(units.items()), 1))} for each in chosen
        ]
    if sets and draw.chance(0.01):
        consumes = [{"counterSet": "nowhere", "counters": {"units": {"value": "1"}}}]
    multiple = shares and draw.chance(0.7)
    node: Manifest = {}
    if per_device:
        where = draw.weighted({"name": 3, "all": 1, "selector": 1})
        known: dict[str, Manifest] = {"name": {"nodeName": draw.pick(names)}, "all": {"allNodes": True}}
        node = known.get(where) or _selected(draw)
    binding = draw.chance(0.04)
    return {
        **without_none(
            name=name,
            attributes=attributes or None,
            capacity=_capacity(draw, policies=multiple) or None,
            consumesCounters=consumes,
            taints=draw.some(TAINTS, 1, 2) if draw.chance(0.15) else None,
            allowMultipleAllocations=True if multiple else None,
            bindingConditions=["example.com/ready"] if binding else None,
            bindingFailureConditions=["example.com/failed"] if binding else None,
            bindsToNode=True if binding else None,
        ),
        **node,
    }


def _capacity(draw: Draw, *, policies: bool) -> Manifest:
    found: Manifest = {}
    for name, values in CAPACITIES.items():
        if draw.chance(0.8):
            found[name] = {"value": draw.pick(values)}
            if policies and name == "memory" and draw.chance(0.7):
                found[name]["requestPolicy"] = draw.pick(
                    (
                        {"default": "1Gi", "validRange": {"min": "1Gi", "max": "8Gi", "step": "1Gi"}},
                        {"default": "2Gi", "validValues": ["2Gi", "4Gi", "8Gi"]},
                        {"default": "3Gi", "validRange": {"min": "1Gi"}},
                    )
                )
    return found


def _claim(draw: Draw, name: str, *, shares: bool) -> Manifest:
    def exact(*, sub: bool) -> Manifest:
        every = draw.chance(0.12)
        asked = None
        if draw.chance(0.5 if shares else 0.1):
            amounts = {"memory": draw.pick(("500Mi", "1Gi", "3Gi", "6Gi", "15Gi")), "cores": draw.pick(("1", "8"))}
            asked = {"requests": dict(draw.some(list(amounts.items()), 1))}
        return without_none(
            deviceClassName=draw.weighted({"any": 8, "dra": 4, "picky": 1.5, "missing": 0.15}),
            selectors=[{"cel": {"expression": _expression(draw, draw.number(1, 3))}}] if draw.chance(0.3) else None,
            allocationMode="All" if every else None,
            count=None if every else draw.weighted({1: 7, 2: 3, 3: 1, 5: 0.5, 20: 0.2}),
            tolerations=draw.some(TOLERATIONS, 1, 2) if draw.chance(0.25) else None,
            adminAccess=True if not sub and draw.chance(0.06) else None,
            capacity=asked,
        )

    def request(index: int) -> Manifest:
        if draw.chance(0.3):
            given = [{"name": f"s{number}", **exact(sub=True)} for number in range(draw.number(1, 3))]
            return {"name": f"r{index}", "firstAvailable": given}
        return {"name": f"r{index}", "exactly": exact(sub=False)}

    names = (*(f"{DRIVERS[0]}/{key}" for key in ("model", "index", "numa")), "resource.kubernetes.io/pcieRoot")
    return _claimed(draw, name, draw.times({1: 6, 2: 3, 3: 0.5}, request), names)


def _expression(draw: Draw, depth: int) -> str:
    """A random condition; now and then one that is an error on some devices, or that is not judged."""
    if draw.chance(0.01):
        return draw.pick(UNJUDGED)
    if depth > 1:
        left, right = _expression(draw, depth - 1), _expression(draw, depth - 1)
        return draw.weighted(
            {f"{left} && {right}": 4, f"({left}) || ({right})": 4, f"!({left})": 2, f"({left}) ? ({right}) : false": 1}
        )
    domain = draw.weighted({DRIVERS[0]: 5, DRIVERS[1]: 2, "resource.kubernetes.io": 1})
    name = draw.pick(("model", "index", "fast", "firmware", "numa", "pcieRoot"))
    attribute = draw.weighted(
        {f'device.attributes["{domain}"].{name}': 4, f"device.attributes['{domain}']['{name}']": 1}
    )
    test = draw.pick(TESTS).replace("@", attribute)
    memory = f'device.capacity["{domain}"].{draw.pick(("memory", "cores"))}'
    kind = draw.weighted({"guarded": 6, "plain": 0.6, "driver": 2, "capacity": 2, "presence": 1, "domain": 0.5})
    if kind == "guarded":
        guard = draw.pick((f'"{name}" in device.attributes["{domain}"]', f'has(device.attributes["{domain}"].{name})'))
        return f"{guard} && {test}"
    if kind == "capacity":
        amount = draw.pick(('"10Gi"', '"15Gi"', '"10"', '"1e10"'))
        relation = draw.pick(
            (f".compareTo(quantity({amount})) >= 0", f".isLessThan(quantity({amount}))", f" == quantity({amount})")
        )
        return f"has({memory}) && {memory}{relation}"
    return {
        "plain": test,
        "driver": draw.pick(
            (
                'device.driver == "dra.example.com"',
                'device.driver.startsWith("nic")',
                'device.driver in ["nic.example.com", "x"]',
            )
        ),
        "presence": f'"{name}" in device.attributes["{domain}"]',
        "domain": draw.pick(
            (
                f'"{domain}" in device.attributes',
                "device.allowMultipleAllocations",
                "has(device.attributes.foo)",
                'device.attributes["no.where"].x == 1 || true',
            )
        ),
    }[kind]


TESTS = (
    '@ == "a"',
    '@ != "b"',
    '@ in ["a", "A-b"]',
    "@ in [0, 1, -5]",
    "@ >= 1",
    "@ < 2 || @ == 2",
    "!@ || true",
    "@ == true",
    '@.startsWith("A")',
    '@.endsWith("b") || @.contains("a")',
    '@.matches("^[a-z]$")',
    '@.upperAscii() == "A"',
    '@ == semver("1.2.3")',
    '@.compareTo(semver("1.9.0")) > 0',
    '@.isGreaterThan(semver("v1.5", true))',
    "@.major() == 2 && @.minor() < 5",
    '@ == "pci0000:00"',
    '@ == "a" ? true : @ == "b"',
)


def _others(draw: Draw, slices: list[Manifest]) -> list[Manifest]:
    """Claims of other pods that hold devices."""
    holdable = [
        (each["spec"]["driver"], each["spec"]["pool"]["name"], device)
        for each in slices
        for device in each["spec"].get("devices", ())
    ]

    def result(number: int, driver: str, pool: str, device: Manifest) -> Manifest:
        share = None
        if device.get("allowMultipleAllocations"):
            share = f"00000000-0000-4000-8000-{number:012d}"
        taken = {"memory": "1Gi"} if share and "memory" in device.get("capacity", {}) else None
        return without_none(
            request="r0",
            driver=driver,
            pool=pool,
            device=device["name"],
            shareID=share,
            consumedCapacity=taken,
            adminAccess=True if draw.chance(0.05) else None,
        )

    share = draw.pick((0.0, 0.1, 0.2, 0.5))
    held = [result(number, *each) for number, each in enumerate(holdable) if draw.chance(share)]
    return [
        {
            "metadata": {"name": f"held{index}", "namespace": "other"},
            "spec": {"devices": {"requests": [{"name": "r0", "exactly": {"deviceClassName": "any"}}]}},
            "status": {"allocation": {"devices": {"results": [each]}}},
        }
        for index, each in enumerate(held)
    ]
