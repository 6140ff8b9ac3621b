"""Extended resources and node labels as GPUs, in the site's words."""

from __future__ import annotations

import re
from typing import Any

from gpuflow.catalog.catalog import FormName
from gpuflow.catalog.lookup import models_with_product
from gpuflow.importing.plain import whole_number
from gpuflow.site import Site

FORMS: tuple[FormName, ...] = ("sxm", "pcie", "nvl")
_MIG = re.compile(r"nvidia\.com/mig-([0-9]+g\.[0-9]+gb)")


def gpu_words(
    extended: dict[str, str], selector: dict[str, str], site: Site
) -> tuple[dict[str, Any], dict[str, str], dict[str, str]]:
    """Words of a step for its GPUs; the node labels and the resources that they do not say."""
    rest = dict(extended)
    label = site.gpu.product_label
    product = str(selector[label]) if label in selector else None
    models = models_with_product(product) if product else ()
    count = whole_number(rest.get(site.gpu.resource))
    if count:
        del rest[site.gpu.resource]
        if len(models) != 1 or label is None or product is None:
            return {"gpu": count}, selector, rest
        others = {key: value for key, value in selector.items() if key != label}
        model = models[0]
        forms = [form for form in FORMS if product in model.products_in(form)]
        form = {"form": forms[0]} if len(forms) == 1 and len(model.products) > 1 else {}
        return {"gpu": {"model": model.id, "count": count, **form}}, others, rest
    for name in rest:
        match = _MIG.fullmatch(name)
        slices = whole_number(rest[name])
        if match and len(models) == 1 and site.mig.strategy == "mixed" and slices is not None:
            others = {key: value for key, value in selector.items() if key != label}
            del rest[name]
            return {"mig": {"profile": match[1], "model": models[0].id, "count": slices}}, others, rest
    return {}, selector, rest
