"""What this machine has for the steps of a run, and how it is given out.

CPU and memory are those that this process may use: its affinity and the limits of its cgroups count. GPUs are those
that `nvidia-smi` names, less those that the user's own CUDA_VISIBLE_DEVICES leaves out.

A share of a GPU (`shared_gpu`) is the GPU itself here: up to `SHARES` of them are on one at the same time, beside no
step that has it whole, and nothing keeps their memory apart.
"""

from __future__ import annotations

import os
import resource
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from gpuflow.catalog import FormName, parse_profile
from gpuflow.catalog import model as find_model
from gpuflow.core.errors import join_names
from gpuflow.local.gpus import CUDA, NVIDIA, Gpu, gpus_here, visible
from gpuflow.quantity import NANO, Format, Quantity
from gpuflow.runtime.base.container import available_memory
from gpuflow.spec.step import Step

SHARES = 4  # of one GPU at the same time
STEPS_PER_CPU = 4  # at the same time, where nobody says how many: of those that ask for little
ONE_CPU = Quantity("1")  # what a step takes that does not say
GROUPS, OWN_GROUPS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
_NO_LIMIT = 1 << 60  # cgroup v1 has a number of this size where there is no limit


@dataclass(frozen=True, slots=True)
class Machine:
    """What can be given out, and sentences about what was found or guessed on the way."""

    cpu: Quantity
    memory: Quantity
    gpus: tuple[Gpu, ...] = ()
    told: tuple[str, ...] = ()


def this_machine(environment: Mapping[str, str] | None = None) -> Machine:
    """What this process may use. `environment`: where CUDA_VISIBLE_DEVICES is looked for; default: its own."""
    told: list[str] = []
    gpus = gpus_here(told)
    setting = (os.environ if environment is None else environment).get(CUDA)
    if setting is not None and gpus:
        gpus = visible(gpus, setting, told)
    told += (f"GPU {gpu.index} ({gpu.uuid}) is in use by {join_names(gpu.users)}" for gpu in gpus if gpu.users)
    memory, free = _memory(), available_memory()
    if free is not None and free * 2 < memory.value:
        told.append(f"only {free / 2**30:.1f}Gi of memory are free now, and {_gibibytes(memory)} are given out in all")
    return Machine(_cpu(), memory, gpus, tuple(told))


def _cpu() -> Quantity:
    return min((Quantity.from_units(len(os.sched_getaffinity(0))), *cpu_limits()))


def _memory() -> Quantity:
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min((Quantity.from_units(total, Format.BINARY_SI), *memory_limits()))


def cpu_limits(groups: Path = GROUPS, own: Path = OWN_GROUPS) -> Iterator[Quantity]:
    """The CPUs that each cgroup around this process lets it have, where it has a limit."""
    for folder in _group_folders("cpu", groups, own):
        files = ("cpu.max", "cpu.cfs_quota_us", "cpu.cfs_period_us")  # of v2, and of v1
        words = [word for name in files for word in _words(folder / name)]
        if len(words) == 2 and all(word.isdigit() and int(word) > 0 for word in words):  # not "max", not -1
            yield Quantity.from_nano(int(words[0]) * NANO // int(words[1])).rounded_to_milli()


def memory_limits(groups: Path = GROUPS, own: Path = OWN_GROUPS) -> Iterator[Quantity]:
    """The memory that each cgroup around this process lets it have, where it has a limit."""
    for folder in _group_folders("memory", groups, own):
        for word in (*_words(folder / "memory.max"), *_words(folder / "memory.limit_in_bytes")):
            if word.isdigit() and int(word) < _NO_LIMIT:
                yield Quantity.from_units(int(word), Format.BINARY_SI)


def _group_folders(controller: str, groups: Path, own: Path) -> Iterator[Path]:
    """The folder of this process's group, and those around it, of cgroup v2 and v1. In a container the group's own path
    may be that of the machine, and what is seen begins with the container."""
    for line in own.read_text(encoding="utf-8").splitlines() if own.exists() else ():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        top = groups / controller if controllers else groups
        inside = PurePosixPath("" if ".." in path else path.lstrip("/"))
        yield from (top / each for each in (inside, *inside.parents))


def _words(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8").split()
    except OSError:
        return []


@dataclass(frozen=True, slots=True)
class Wanted:
    """What one process of a step asks for. `model` is an id of the catalog; with `mig` what slices are cut from."""

    cpu: Quantity = Quantity.zero
    memory: Quantity = Quantity.zero
    gpus: int = 0
    model: str | None = None
    mig: str | None = None
    any_of: tuple[str, ...] = ()
    """Instead of a model: any of these."""
    form: FormName | None = None
    gpu_memory: Quantity | None = None
    """The least memory that each GPU must have for programs."""
    shared: bool = False
    others: tuple[str, ...] = ()
    """Other devices, their names first: only a cluster gives them out."""

    @property
    def gpu_kind(self) -> str:
        if self.mig is not None:
            return f"{self.mig} of {self.model}"
        if self.gpu_memory is not None:
            return f"{self.form or ''} GPU with {self.gpu_memory}".lstrip()
        names = (self.model,) if self.model else self.any_of or ("GPU of any model",)
        kinds = " or ".join(f"{each} {self.form or ''}".strip() for each in names)
        return f"a share of {kinds}" if self.shared else kinds

    def fits(self, gpu: Gpu) -> bool:
        """Whether a GPU is one that is asked for."""
        if self.mig != gpu.profile or (self.gpu_memory is not None and not gpu.has(self.gpu_memory)):
            return False
        named = (self.model,) if self.model is not None else self.any_of
        known = [each for each in gpu.models if not named or each in named]
        if self.form is None:
            return bool(known) or not named
        return any(gpu.product in find_model(each).products_in(self.form) for each in known)


def wanted_of(step: Step) -> Wanted:
    """What a step asks for; of a gang what each of its workers asks for."""
    zero, amounts = Quantity.zero, (step.cpu, step.memory)
    cpu, memory = (zero if each is None else each.request or each.limit or zero for each in amounts)
    others = [f"{name} {count}" for name, count in (step.kubernetes.resources if step.kubernetes else {}).items()]
    others += ["ResourceClaim of a cluster"] if step.device_claim is not None else []
    plain = Wanted(cpu, memory, others=tuple(others))
    gpu, mig, share = step.gpu, step.mig, step.shared_gpu
    if gpu is not None:
        ids = tuple(find_model(name).id for name in gpu.any_of or ())
        return replace(
            plain,
            gpus=gpu.count,
            model=gpu.model and find_model(gpu.model).id,
            any_of=ids,
            form=gpu.form,
            gpu_memory=gpu.memory,
        )
    if mig is not None:
        return replace(plain, gpus=mig.count, model=find_model(mig.model).id, mig=str(parse_profile(mig.profile)))
    if share is not None:
        return replace(plain, gpus=share.count, model=share.model and find_model(share.model).id, shared=True)
    return plain


@dataclass(frozen=True, eq=False)
class Share:
    """What one step has until it is given back."""

    cpu: Quantity
    memory: Quantity
    gpus: tuple[Gpu, ...]
    places: int
    """How much of each GPU: `SHARES` is all of it."""
    is_pretended: bool
    """Whether its programs are told nothing about GPUs, because there are fewer than it asked for."""

    def environment(self) -> dict[str, str]:
        """The variables that say which GPUs its programs may use: without GPUs none, not all that there are."""
        if self.is_pretended:
            return {}
        uuids = ",".join(gpu.uuid for gpu in self.gpus)
        return {CUDA: uuids, NVIDIA: uuids or "void"}


class Room:
    """Gives out what a machine has. Who waits first is the caller's to know.

    `jobs`: so many steps at the same time at most. `pretend_gpus`: a step that asks for more than there is runs anyway,
    with what there is, and no variable names a GPU to its programs.
    """

    def __init__(self, machine: Machine, jobs: int | None = None, pretend_gpus: bool = False) -> None:
        self.machine, self.pretend_gpus = machine, pretend_gpus
        self.told: tuple[str, ...] = ()
        self._most = most_programs()
        """So many at the same time whatever is asked for: a gang alone may be more than what nobody has said."""
        if jobs is not None and jobs > self._most:
            limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
            self.told = (
                f"--jobs {jobs}: {self._most} programs run at the same time at most, because this process may have "
                f"{limit} files open (ulimit -n)",
            )
        self.jobs = min(self._most, max(1, machine.cpu.value * STEPS_PER_CPU) if jobs is None else jobs)
        self._most = self._most if jobs is None else self.jobs
        self._cpu, self._memory = machine.cpu, machine.memory
        self._shares: set[Share] = set()
        self._places: Counter[str] = Counter()
        """How much of each GPU is taken, by its UUID."""

    def missing(self, *ranks: Wanted) -> str | None:
        """What this machine can never give, in a sentence; None when it can give everything, or pretends to. `ranks`:
        what each rank of a gang asks for, or a step that is none."""
        if len(ranks) > self._most:
            why = f"no more than {self._most} programs may (--jobs, and the limit of open files)"
            return f"its {len(ranks)} ranks run at the same time, and {why}"
        return None if self.pretend_gpus else self._shortage(*ranks)

    def remarks(self, *ranks: Wanted) -> list[str]:
        """What a step gets otherwise than it asks, in sentences."""
        shortage = self._shortage(*ranks)
        if shortage is not None:
            return [f"{shortage}: it runs anyway, with what there is"] if self.pretend_gpus else []
        found = []
        for wanted in dict.fromkeys(ranks):
            if wanted.shared:
                found.append(
                    f"a share of a GPU is the GPU itself here: up to {SHARES} are on one, and their memory is not apart"
                )
            elif len({gpu.product for gpu in max(self._alike(wanted), key=len, default=())}) > 1:
                found.append(f"its {wanted.gpus} GPUs are of several products, because this machine has fewer of each")
        return found

    def take(self, wanted: Wanted) -> Share | None:
        """What is asked for; None while it must wait. `ValueError` where it would wait for ever."""
        found = self.take_all((wanted,))
        return None if found is None else found[0]

    def take_all(self, ranks: Sequence[Wanted]) -> tuple[Share, ...] | None:
        """What all ranks of a gang ask for, or nothing while that must wait. `ValueError` as for one."""
        if (sentence := self.missing(*ranks)) is not None:
            raise ValueError(sentence)
        if len(self._shares) and len(self._shares) + len(ranks) > self.jobs:
            return None
        pretended = any(each.gpus for each in ranks) and not self._has_gpus(ranks)
        given: list[tuple[Gpu, ...]] | None = [()] * len(ranks)
        given = given if pretended else self._free_gpus_of(ranks, self._places)
        if given is None:
            return None
        # Where more is asked for than there is, and pretended, or one CPU for each that does not say, it gets all.
        cpu, memory, shares = self.machine.cpu, self.machine.memory, []
        for wanted, gpus in zip(ranks, given, strict=True):
            own = Share(min(wanted.cpu or ONE_CPU, cpu), min(wanted.memory, memory), gpus, _places(wanted), pretended)
            cpu, memory = cpu - own.cpu, memory - own.memory
            shares.append(own)
        cpu, memory = self.machine.cpu - cpu, self.machine.memory - memory
        if cpu > self._cpu or memory > self._memory:
            return None
        self._cpu, self._memory = self._cpu - cpu, self._memory - memory
        self._shares.update(shares)
        for share in shares:
            self._places.update({gpu.uuid: share.places for gpu in share.gpus})
        return tuple(shares)

    def give_back(self, share: Share) -> None:
        """The step has ended. A share that is not out is not given back again."""
        if share in self._shares:
            self._shares.remove(share)
            self._cpu, self._memory = self._cpu + share.cpu, self._memory + share.memory
            self._places.subtract({gpu.uuid: share.places for gpu in share.gpus})

    def _has_gpus(self, ranks: Sequence[Wanted]) -> bool:
        """Whether the machine has the GPUs for all ranks when nobody else is there."""
        return self._free_gpus_of(ranks, Counter()) is not None

    def _free_gpus_of(self, ranks: Sequence[Wanted], places: Counter[str]) -> list[tuple[Gpu, ...]] | None:
        """Free GPUs for each rank, where so much of each is taken. One rank may take what only another can use: so the
        last is asked first too."""
        numbered = list(enumerate(ranks))
        for order in (numbered, numbered[::-1]):
            found: dict[int, tuple[Gpu, ...]] = {}
            taken = Counter(places)
            for at, wanted in order:
                gpus = self._free_gpus(wanted, taken)
                if gpus is None:
                    break
                found[at] = gpus
                taken.update({gpu.uuid: _places(wanted) for gpu in gpus})
            if len(found) == len(ranks):
                return [found[at] for at in range(len(ranks))]
        return None

    def _free_gpus(self, wanted: Wanted, taken: Counter[str]) -> tuple[Gpu, ...] | None:
        """GPUs that nobody has, or has no more than shares of; those that other programs use come last."""
        places, count = _places(wanted), _cards(wanted)
        for group in self._alike(wanted) if count else ([],):
            free = [gpu for gpu in group if taken[gpu.uuid] + places <= SHARES]
            if len(free) >= count:
                return tuple(sorted(free, key=lambda gpu: (bool(gpu.users), taken[gpu.uuid], gpu.index))[:count])
        return None

    def _alike(self, wanted: Wanted) -> list[list[Gpu]]:
        """Groups of GPUs of which each has as many as are asked for: of one product each; where no product has so many,
        all that fit; none where these are too few."""
        fitting: dict[str, list[Gpu]] = {}
        for gpu in self.machine.gpus if wanted.gpus else ():
            if wanted.fits(gpu):
                fitting.setdefault(gpu.product, []).append(gpu)
        together = [gpu for group in fitting.values() for gpu in group]
        groups = [group for group in (*fitting.values(), together) if len(group) >= _cards(wanted) > 0]
        return groups[:-1] or groups

    def _shortage(self, *ranks: Wanted) -> str | None:
        """What is asked for and never there, and what is there instead."""
        here, pairs, zero = self.machine, list[tuple[str, str]](), Quantity.zero
        cpu, memory = sum((each.cpu for each in ranks), zero), sum((each.memory for each in ranks), zero)
        if cpu > here.cpu:
            pairs.append((f"{cpu} CPU", f"{here.cpu} CPU"))
        if memory > here.memory:
            pairs.append((f"{memory} of memory", f"{_gibibytes(here.memory)} of memory"))
        if not self._has_gpus(ranks):
            kinds: Counter[str] = Counter()
            for each in ranks:
                kinds.update({each.gpu_kind: each.gpus})
            asked = [f"{count} x {kind}" for kind, count in kinds.items() if count]
            pairs.append((join_names(asked), _names(here.gpus)))
        others = dict.fromkeys(other for each in ranks for other in each.others)
        pairs += ((other, f"no {other.partition(' ')[0]}") for other in others)
        if not pairs:
            return None
        wanted, there = (join_names(words) for words in zip(*pairs, strict=True))
        who = "it asks for" if len(ranks) == 1 else f"its {len(ranks)} ranks together ask for"
        return f"{who} {wanted}, and this machine has {there}"


def most_programs() -> int:
    """How many programs may run at the same time by the limit of open files: each takes one, a gang two more."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return sys.maxsize
    try:
        used = len(os.listdir("/proc/self/fd"))
    except OSError:
        used = 16
    return max(1, (limit - used - 16) // 3)  # 16: what the start of a program takes, and the run's own files


def _places(wanted: Wanted) -> int:
    """How much of each of its GPUs it takes."""
    return min(wanted.gpus, SHARES) if wanted.shared else SHARES


def _cards(wanted: Wanted) -> int:
    """On how many GPUs a step is: shares may be on one and the same."""
    return min(1, wanted.gpus) if wanted.shared else wanted.gpus


def _names(gpus: Iterable[Gpu]) -> str:
    counts = Counter(gpu.name for gpu in gpus)
    return join_names([f"{count} x {name}" for name, count in counts.items()]) or "no GPU"


def _gibibytes(memory: Quantity) -> str:
    return f"{memory.value / 2**30:.1f}Gi"
