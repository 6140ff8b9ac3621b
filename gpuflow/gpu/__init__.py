"""GPUs as data: models, MIG profiles, instance types, and the small maths on them.

    >>> from gpuflow import gpu
    >>> gpu.model("h100").id
    'h100-80gb'
    >>> gpu.arrange("a100-80gb", ["3g.40gb", "2g.20gb", "1g.10gb"]).legal
    True

Importing this package reads no file: the catalog is parsed on the first question and kept.

The package is also what pipelines in Python call to ask for GPUs: `gpu("a100-80gb", 2)`.
"""

import sys
from types import ModuleType
from typing import Any

from gpuflow.gpu.catalog import Confidence, Engines, Mig, Model, Profile, find_models, models
from gpuflow.gpu.fitting import Fit, Offer, fit
from gpuflow.gpu.geometry import Arrangement, Placement, arrange, legal_multisets, maximal_multisets
from gpuflow.gpu.instance_types import Instance, find_instances, instances
from gpuflow.gpu.labels import LabelTooLong, ProductLabel, product_label, product_labels, read_product_label
from gpuflow.gpu.lookup import (
    AmbiguousGpu,
    UnknownGpu,
    UnknownProfile,
    aliases,
    model,
    models_with_pci,
    models_with_product,
    models_with_profile,
    profile,
)
from gpuflow.gpu.packing import Packing, pack
from gpuflow.gpu.profile_name import BadProfileName, ProfileName, parse_profile, read_slices
from gpuflow.gpu.resources import NotServed, Sharing, Strategy, profile_of_resource, resource_name

__all__ = [
    "AmbiguousGpu",
    "Arrangement",
    "BadProfileName",
    "Confidence",
    "Engines",
    "Fit",
    "Instance",
    "LabelTooLong",
    "Mig",
    "Model",
    "NotServed",
    "Offer",
    "Packing",
    "Placement",
    "ProductLabel",
    "Profile",
    "ProfileName",
    "Sharing",
    "Strategy",
    "UnknownGpu",
    "UnknownProfile",
    "aliases",
    "arrange",
    "find_instances",
    "find_models",
    "fit",
    "instances",
    "legal_multisets",
    "maximal_multisets",
    "model",
    "models",
    "models_with_pci",
    "models_with_product",
    "models_with_profile",
    "pack",
    "parse_profile",
    "product_label",
    "product_labels",
    "profile",
    "profile_of_resource",
    "read_product_label",
    "read_slices",
    "resource_name",
]


class _Callable(ModuleType):
    """`gpuflow.gpu` is the catalog; `gpuflow.gpu(...)` is a step's wish for GPUs."""

    def __call__(self, *args: Any, **fields: Any) -> Any:
        from gpuflow.spec.shapes import gpu  # the spec stands above the catalog, so it is found only when called

        return gpu(*args, **fields)


sys.modules[__name__].__class__ = _Callable
