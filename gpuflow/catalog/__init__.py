"""GPUs as data: models, MIG profiles, instance types, and the small math on them.

    >>> from gpuflow import catalog
    >>> catalog.model("h100").id
    'h100-80gb'
    >>> catalog.arrange("a100-80gb", ["3g.40gb", "2g.20gb", "1g.10gb"]).legal
    True

Importing this package reads no file: the catalog is parsed on the first question and kept.
"""

from gpuflow.catalog.catalog import (
    AmbiguousGpu,
    Confidence,
    Engines,
    Form,
    FormName,
    Mig,
    Model,
    Profile,
    UnknownGpu,
    UnknownProfile,
    aliases,
    find_models,
    model,
    models,
    models_with_pci,
    models_with_product,
    models_with_profile,
    profile,
)
from gpuflow.catalog.kubernetes_names import (
    LabelTooLong,
    ProductLabel,
    product_label,
    product_labels,
    profile_of_resource,
    read_product_label,
)
from gpuflow.catalog.mig_geometry import (
    Arrangement,
    Packing,
    Placement,
    arrange,
    legal_multisets,
    maximal_multisets,
    pack,
)
from gpuflow.catalog.offers import Fit, Instance, Offer, find_instances, fit, instances
from gpuflow.catalog.profile_name import BadProfileName, ProfileName, parse_profile, read_slices

__all__ = [
    "AmbiguousGpu",
    "Arrangement",
    "BadProfileName",
    "Confidence",
    "Engines",
    "Fit",
    "Form",
    "FormName",
    "Instance",
    "LabelTooLong",
    "Mig",
    "Model",
    "Offer",
    "Packing",
    "Placement",
    "ProductLabel",
    "Profile",
    "ProfileName",
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
]
