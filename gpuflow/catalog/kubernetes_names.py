"""What Kubernetes calls GPUs: resource names of NVIDIA's device plugin, and labels of GPU Feature Discovery.

Under the plugin's strategy mixed, a slice is `nvidia.com/mig-<profile>`, with `+` written as `.`, and `.shared` at the
end where the plugin runs with `renameByDefault`. The node label `nvidia.com/gpu.product` is written from a model, and
read back. Its value is the driver's name for the GPU with blanks as dashes, then `-MIG-<profile>` on nodes cut alike
(strategy single), then `-SHARED` when a GPU is shared under its own resource name. Kubernetes allows 63 characters, and
a few combinations are longer: such a label cannot exist.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from gpuflow.catalog.catalog import Model, models_with_product
from gpuflow.catalog.catalog import model as find_model
from gpuflow.catalog.catalog import profile as find_profile
from gpuflow.catalog.profile_name import BadProfileName, dotted_name, parse_profile, profile_of_dotted

MIG_PREFIX: Final = "nvidia.com/mig-"
SHARED_SUFFIX: Final = ".shared"


def profile_of_resource(resource: str) -> str | None:
    """The profile behind `nvidia.com/mig-1g.10gb.me` (`1g.10gb+me`); `None` for any other resource."""
    if not resource.startswith(MIG_PREFIX):
        return None
    try:
        return str(parse_profile(profile_of_dotted(resource.removeprefix(MIG_PREFIX).removesuffix(SHARED_SUFFIX))))
    except BadProfileName:
        return None


PRODUCT_KEY: Final = "nvidia.com/gpu.product"
SHARING_KEY: Final = "nvidia.com/gpu.sharing-strategy"
"""How the GPUs of a node are shared: none, time-slicing or mps."""
SLICES_KEY: Final = "nvidia.com/gpu.slices.gi"
"""Only nodes whose GPUs are all cut alike (strategy single) have it; mig.strategy stands on the others as well."""
MAX_LABEL: Final = 63

_INVALID_CHARACTERS: Final = re.compile(r"[^A-Za-z0-9\-_. ]")
_VALUE: Final = re.compile(
    r"(?P<product>.+?)(?:-MIG-(?P<mig>INVALID|[0-9]+g\.[0-9]+gb[a-z.\-]*?))?(?P<shared>-SHARED)?", re.ASCII
)


class LabelTooLong(ValueError):
    """A label value of more than 63 characters, which no node can carry."""


@dataclass(frozen=True, slots=True)
class ProductLabel:
    """What a product label says about its node."""

    product: str
    profile: str | None
    """The profile every slice of the node has, under strategy single."""
    invalid: bool
    """The node runs strategy single but its GPUs are not all cut alike: it offers nothing."""
    shared: bool
    models: tuple[Model, ...]
    """Models the product can be; empty when the catalog does not know it."""


def product_label(name: str, profile: str | None = None, *, shared: bool = False) -> str:
    """The label value for a GPU of this driver name (`NVIDIA H200`) or product (`NVIDIA-H200`)."""
    parts = ["-".join(_INVALID_CHARACTERS.sub("", name).split())]
    if profile is not None:
        parts += ["MIG", dotted_name(str(parse_profile(profile)))]
    if shared:
        parts.append("SHARED")
    value = "-".join(parts)
    if len(value) > MAX_LABEL:
        why = f"{PRODUCT_KEY}={value} is {len(value)} characters long and Kubernetes allows {MAX_LABEL}"
        raise LabelTooLong(f"{why}: no node carries it; select these nodes by another label")
    return value


def product_labels(of: str | Model, profile: str | None = None, *, shared: bool = False) -> tuple[str, ...]:
    """Every label value that nodes with this model can carry. Raises `LabelTooLong` when none can exist."""
    owner = find_model(of)
    name = find_profile(owner, profile).name if profile is not None else None
    values: list[str] = []
    refusal: LabelTooLong | None = None
    for product in owner.products:
        try:
            values.append(product_label(product, name, shared=shared))
        except LabelTooLong as error:
            refusal = error
    if refusal and not values:
        raise refusal
    return tuple(values)


def read_product_label(value: str) -> ProductLabel:
    """Take a label value apart. Anything is a product, so this never fails."""
    found = _VALUE.fullmatch(value)
    if found is None:
        return ProductLabel(value, None, False, False, ())
    product, invalid, shared = found["product"], found["mig"] == "INVALID", found["shared"] is not None
    profile = profile_of_dotted(found["mig"]) if found["mig"] and not invalid else None
    return ProductLabel(product, profile, invalid, shared, models_with_product(product))
