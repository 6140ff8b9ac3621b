"""The catalog: `models.yaml` and `mig.yaml` as frozen values, parsed once, on the first question.

The two files are parsed apart because most questions (does this model exist?) never touch MIG.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Literal, TypeVar

from gpuflow.catalog.profile_name import parse_profile


class UnknownGpu(LookupError):
    """No model of that name. `.suggestions` are ids to try, best first."""

    def __init__(self, name: str, suggestions: Sequence[str], message: str | None = None) -> None:
        self.name = name
        self.suggestions = tuple(suggestions)
        super().__init__(message or f'unknown GPU model "{name}"; {_hint(self.suggestions)}')


class AmbiguousGpu(UnknownGpu):
    """A short name of several models; `.suggestions` are all of them."""

    def __init__(self, name: str, candidates: Sequence[str]) -> None:
        message = f'GPU model "{name}" can be {" or ".join(candidates)}; write which one'
        super().__init__(name, candidates, message)


class UnknownProfile(LookupError):
    """No such profile on that model. `.suggestions` are profiles of the model to try, best first."""

    def __init__(self, name: str, model: str, suggestions: Sequence[str], message: str) -> None:
        self.name = name
        self.model = model
        self.suggestions = tuple(suggestions)
        super().__init__(message)


def model(name: str | Model) -> Model:
    """The model of that id or alias; a `Model` is handed back."""
    if isinstance(name, Model):
        return name
    wanted = _fold_name(name)
    if wanted in ambiguous_names():
        raise AmbiguousGpu(name, ambiguous_names()[wanted])
    found = _by_name().get(wanted)
    if found is None:
        raise UnknownGpu(name, _close_models(name))
    return found


def profile(of: str | Model, name: str) -> Profile:
    """The profile of a model. Raises `BadProfileName` for what is no profile, else `UnknownProfile`."""
    owner = model(of)
    written = str(parse_profile(name))
    if not owner.profiles:
        message = f'{owner.id} has no MIG, so no "{name}"; ask for the whole GPU or a share of it'
        raise UnknownProfile(name, owner.id, (), message)
    found = {known.name: known for known in owner.profiles}
    if written not in found:
        close = _close_profiles(written, owner)
        elsewhere = [other.id for other in models_with_profile(written)]
        more = f" and {len(elsewhere) - 3} more" if len(elsewhere) > 3 else ""
        also = f" ({written} is a profile of {', '.join(elsewhere[:3])}{more})" if elsewhere else ""
        message = f'{owner.id} has no MIG profile "{name}"{also}; {_hint(close)}'
        raise UnknownProfile(name, owner.id, close, message)
    return found[written]


def aliases() -> dict[str, str]:
    """Every alias and the id it stands for, sorted."""
    return {alias: owner.id for alias, owner in sorted(_by_name().items()) if alias != owner.id}


def models_with_profile(name: str) -> tuple[Model, ...]:
    """Every model that has a profile of this name; often several, and they mean different slices."""
    return tuple(owner for owner in models() if any(known.name == name for known in owner.profiles))


def models_with_product(product: str) -> tuple[Model, ...]:
    """Models a bare `nvidia.com/gpu.product` value can mean. Old drivers leave out the leading `NVIDIA-`."""
    bare = product.removeprefix("NVIDIA-")
    return tuple(owner for owner in models() if any(bare == known.removeprefix("NVIDIA-") for known in owner.products))


def models_with_pci(device: str) -> tuple[Model, ...]:
    """Models of a PCI device id as mig-parted writes it, such as `0x233510DE`."""
    return tuple(owner for owner in models() if device.lower() in (known.lower() for known in owner.pci))


@cache
def _by_name() -> dict[str, Model]:
    return {name: owner for owner in models() for name in (owner.id, *owner.aliases)}


@lru_cache(maxsize=1024)
def _fold_name(name: str) -> str:
    return "-".join(name.lower().replace("_", " ").replace("-", " ").split())


def _close_models(name: str) -> tuple[str, ...]:
    import difflib

    wanted = _fold_name(name)
    labeled = models_with_product(name.strip().replace(" ", "-"))
    if labeled:
        return tuple(owner.id for owner in labeled)
    spellings = {alias: (owner.id,) for alias, owner in _by_name().items()} | ambiguous_names()
    spellings |= {_fold_name(product): (owner.id,) for owner in models() for product in owner.products}
    # A word that is a name by itself (nvidia-h100, a100-sxm) says more than a similar spelling.
    words = [word for word in wanted.split("-") if word in spellings]
    close = difflib.get_close_matches(wanted.removeprefix("nvidia-"), sorted(spellings), n=4, cutoff=0.6)
    return tuple(dict.fromkeys(id for spelling in (*words, *close) for id in spellings[spelling]))[:4]


def _close_profiles(name: str, owner: Model) -> tuple[str, ...]:
    import difflib

    names = [known.name for known in owner.profiles]
    # The compute size is what people are surest of, so the same size comes before a similar spelling.
    same_size = [known for known in names if known.partition(".")[0] == name.partition(".")[0]]
    return tuple(dict.fromkeys((*same_size, *difflib.get_close_matches(name, names, n=3, cutoff=0.6))))[:4]


def _hint(suggestions: Sequence[str]) -> str:
    if suggestions:
        return f"did you mean {' or '.join(suggestions)}?"
    return "`gpuflow gpus list` shows what is known"


Confidence = Literal["run", "seen", "guess"]
"""How a row is known: measured on hardware, read in the named source, or inferred."""

CONFIDENCES: tuple[Confidence, ...] = ("run", "seen", "guess")

FormName = Literal["sxm", "pcie", "nvl"]
"""How a board is built: sxm on a baseboard with NVLink between all GPUs, pcie a card, nvl cards with NVLink bridges."""


@dataclass(frozen=True, slots=True)
class Engines:
    """Engine counts of a GPU or of a slice. `None` is unknown, never zero."""

    sm: int | None = None
    ce: int | None = None
    dec: int | None = None
    enc: int | None = None
    jpeg: int | None = None
    ofa: int | None = None

    def known_counts(self) -> dict[str, int]:
        """The counts that are known, by engine name."""
        counts = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: count for name, count in counts.items() if count is not None}


@dataclass(frozen=True, slots=True)
class Profile:
    """One way to cut one model: a name such as `1g.10gb` means nothing without the model it belongs to."""

    model: str
    name: str
    g: int
    """Compute slices."""
    size: int
    """Memory slices, in units of the model's grid."""
    starts: tuple[int, ...]
    """Memory slices at which an instance may begin."""
    max: int
    """Instances of this profile on one GPU."""
    usable_gib: float | None
    """Memory an instance really gets; less than the name says, `None` when nobody printed it."""
    engines: Engines
    confidence: Confidence
    """Of `starts`, `size` and `max`."""
    source: str
    id: int | None = None
    """The number `nvidia-smi mig -cgi` takes."""


@dataclass(frozen=True, slots=True)
class Mig:
    """How a model can be cut."""

    grid: int
    """Memory slices of the whole GPU."""
    slices: int
    """Compute slices of the whole GPU."""
    totals: Engines
    profiles: tuple[Profile, ...]
    source: str
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Form:
    """One form of a model, and the products that have it."""

    name: FormName
    products: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Model:
    """A GPU that pipelines can name."""

    id: str
    name: str
    family: str
    """As the node label `nvidia.com/gpu.family` spells it."""
    cc: str
    """CUDA compute capability."""
    memory_gb: int
    """The memory of the name; a need is compared with `usable_gib`, never with this."""
    usable_gib: float | None
    products: tuple[str, ...]
    """Values of the node label `nvidia.com/gpu.product` on nodes without MIG or sharing."""
    confidence: Confidence
    """Of `usable_gib` and `products`."""
    source: str
    forms: tuple[Form, ...] = ()
    """The forms that products tell apart; empty when there is one, or when the label does not tell."""
    pci: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    note: str | None = None

    def products_in(self, form: FormName | None) -> tuple[str, ...]:
        """The products of one form, none when the model has no such form; all of them without one."""
        if form is None:
            return self.products
        return next((each.products for each in self.forms if each.name == form), ())

    @property
    def mig(self) -> Mig | None:
        """How the model can be cut; `None` when it cannot."""
        return _migs().get(self.id)

    @property
    def profiles(self) -> tuple[Profile, ...]:
        """Its MIG profiles, smallest first; empty when it cannot be cut."""
        return self.mig.profiles if self.mig else ()


@cache
def models() -> tuple[Model, ...]:
    """Every model of the catalog, in the catalog's order: by architecture, then by memory."""
    return tuple(_model(id, row) for id, row in _read("models.yaml")["models"].items())


@cache
def ambiguous_names() -> dict[str, tuple[str, ...]]:
    """Short names that several models share, with the ids to choose from."""
    return {name: tuple(ids) for name, ids in _read("models.yaml")["ambiguous"].items()}


def find_models(
    text: str | None = None, *, memory_gib: float | None = None, mig: bool | None = None, family: str | None = None
) -> tuple[Model, ...]:
    """Models that match every given wish.

    `text` is looked for in ids, names, aliases and product labels; `memory_gib` is the least usable memory,
    and a model whose memory is unknown is never said to have it.
    """

    def is_wanted(model: Model) -> bool:
        names = (model.id, model.name, *model.aliases, *model.products)
        return (
            (text is None or any(text.lower() in name.lower() for name in names))
            and (memory_gib is None or (model.usable_gib is not None and model.usable_gib >= memory_gib))
            and (mig is None or mig == (model.mig is not None))
            and (family is None or model.family == family.lower())
        )

    return tuple(model for model in models() if is_wanted(model))


def lowest_confidence(confidences: Iterable[Confidence]) -> Confidence:
    """The least sure of several: a conclusion is no surer than what it rests on."""
    return max(confidences, key=CONFIDENCES.index, default="run")


def data_file(name: str) -> Path:
    return Path(__file__).with_name(name)


@cache
def _read(name: str) -> dict[str, Any]:
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    with data_file(name).open(encoding="utf-8") as file:
        content: dict[str, Any] = yaml.load(file, loader)
    return content


@cache
def _migs() -> dict[str, Mig]:
    return {id: _mig(id, row) for id, row in _read("mig.yaml").items()}


T = TypeVar("T")


def decode(row: dict[str, Any], kind: type[T]) -> T:
    """A row of a file as its type; numbers may be text, as in CSV."""
    import msgspec

    return msgspec.convert(row, kind, strict=False)


def _model(id: str, row: dict[str, Any]) -> Model:
    forms = [{"name": name, "products": products} for name, products in row.get("forms", {}).items()]
    return decode({**row, "id": id, "memory_gb": row["gb"], "forms": forms}, Model)


def _mig(id: str, row: dict[str, Any]) -> Mig:
    cut = {"model": id, "source": row["source"]}
    profiles = [{**each, **cut, "usable_gib": each["gib"], "engines": each} for each in row["profiles"]]
    return decode({**row, "profiles": profiles}, Mig)
