"""Where a workload can run: the smallest slice or GPU for a memory need, and cloud instance types.

A need is compared with the memory a process really gets, never with the number in a name: `1g.18gb` of an
H200 has 16.00 GiB. What nobody printed is listed apart as unknown, never as fitting. An instance type has its shape,
and what Kubernetes can allocate where that is documented.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from gpuflow.catalog.catalog import Confidence, Model, Profile, data_file, decode, models
from gpuflow.catalog.catalog import model as find_model
from gpuflow.catalog.profile_name import parse_profile


@dataclass(frozen=True, slots=True)
class Offer:
    """A whole GPU, or a slice of one, to put a workload on."""

    model: Model
    profile: Profile | None

    @property
    def usable_gib(self) -> float | None:
        return self.profile.usable_gib if self.profile else self.model.usable_gib

    @property
    def promised_gb(self) -> int:
        """The memory of the name."""
        return parse_profile(self.profile.name).gb if self.profile else self.model.memory_gb

    @property
    def per_gpu(self) -> int:
        """How many of them one GPU gives."""
        return self.profile.max if self.profile else 1

    @property
    def confidence(self) -> Confidence:
        return self.profile.confidence if self.profile else self.model.confidence

    def __str__(self) -> str:
        return f"{self.model.id} {self.profile.name}" if self.profile else self.model.id


@dataclass(frozen=True, slots=True)
class Fit:
    """Where a need fits, smallest first, and where it is unknown."""

    need_gib: float
    offers: tuple[Offer, ...]
    unknown: tuple[Offer, ...]
    """Offers whose name promises enough but whose memory nobody printed."""


def fit(need_gib: float, *, of: str | Model | None = None, mig: bool | None = None, every: bool = False) -> Fit:
    """Slices and GPUs with at least `need_gib` of usable memory.

    One answer per model, its smallest, unless `every` is true. `of` looks at one model only, `mig` at slices
    only (true) or at whole GPUs only (false).
    """
    owners = models() if of is None else (find_model(of),)
    offers = sorted((Offer(owner, part) for owner in owners for part in (None, *owner.profiles)), key=_size_key)
    asked = [offer for offer in offers if mig in (None, offer.profile is not None)]
    enough = [offer for offer in asked if offer.usable_gib is not None and offer.usable_gib >= need_gib]
    unknown = [offer for offer in asked if offer.usable_gib is None and offer.promised_gb >= need_gib]
    if every:
        return Fit(need_gib, tuple(enough), tuple(unknown))
    smallest = {offer.model.id: offer for offer in reversed(enough)}
    # A slice of unknown memory is worth a look only where it would be smaller than the known answer.
    doubtful = {
        offer.model.id: offer
        for offer in reversed(unknown)
        if offer.model.id not in smallest or _size_key(offer) < _size_key(smallest[offer.model.id])
    }
    return Fit(need_gib, _in_order(smallest.values()), _in_order(doubtful.values()))


def _size_key(offer: Offer) -> tuple[float, int, int, str, str]:
    memory = offer.usable_gib if offer.usable_gib is not None else float(offer.promised_gb)
    # Of two with the same memory the one with less compute, then the plain one before its +me and +gfx.
    compute = offer.profile.g if offer.profile else 1_000
    name = offer.profile.name if offer.profile else ""
    return (memory, compute, len(name), offer.model.id, name)


def _in_order(offers: Iterable[Offer]) -> tuple[Offer, ...]:
    return tuple(sorted(offers, key=_size_key))


@dataclass(frozen=True, slots=True)
class Instance:
    cloud: str
    name: str
    model: str
    """Id of the GPU model."""
    gpus: int
    """Whole GPUs; 0 when the instance has a fraction of one."""
    share: str | None
    """The fraction, such as `1/8`, when there is no whole GPU."""
    vcpu: int
    memory_gib: float
    allocatable_cpu: str | None
    """As Kubernetes writes it; `None` where no figure is documented."""
    allocatable_memory: str | None
    efa: int
    """Elastic Fabric Adapter interfaces (AWS)."""
    source: str
    confidence: Confidence


@cache
def instances() -> tuple[Instance, ...]:
    import csv

    with data_file("instances.csv").open(encoding="utf-8", newline="") as file:
        rows = [{key: text or None for key, text in row.items()} for row in csv.DictReader(file)]
    return tuple(decode({**row, "name": row["instance"]}, Instance) for row in rows)


def find_instances(
    text: str | None = None, *, cloud: str | None = None, of: str | Model | None = None, gpus: int | None = None
) -> tuple[Instance, ...]:
    """Instance types that match every given wish; `gpus` is the least number of whole GPUs."""
    owner = None if of is None else find_model(of).id
    return tuple(
        instance
        for instance in instances()
        if (text is None or text.lower() in instance.name.lower())
        and (cloud is None or instance.cloud == cloud.lower())
        and (owner is None or instance.model == owner)
        and (gpus is None or instance.gpus >= gpus)
    )
