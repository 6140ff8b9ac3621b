"""From what people write to a row of the catalog, or to an error that helps.

A model is found by its id or by one of its aliases, in any case, with blanks and underscores taken as dashes.
A short name that several models share is refused with the candidates: choosing for the user would move a
pipeline to another GPU without a word.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache

from gpuflow.catalog.catalog import Model, Profile, ambiguous_names, models
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
        also = f" ({written} is a profile of {_join_names(elsewhere)})" if elsewhere else ""
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


def _join_names(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _hint(suggestions: Sequence[str]) -> str:
    if suggestions:
        return f"did you mean {' or '.join(suggestions)}?"
    return "`gpuflow gpus list` shows what is known"
