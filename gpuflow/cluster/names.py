"""Which names the objects of a cluster can have. A name that the API server refuses is not carried into a report."""

from __future__ import annotations

import re
from typing import Final

from gpuflow.cluster.kinds import KUEUE_CONFIG, NATIVE
from gpuflow.kubernetes.admission.names import dns_label_faults, dns_subdomain_faults
from gpuflow.printable import HIDDEN

# Custom resources and most kinds have DNS names, but Roles do not, and an API server of its own has its own rules.
# What holds for all: the name is a part of a path. And nobody names an object what nobody can read.
_PATH_SEGMENT: Final = re.compile(r"(?!\.\.?\Z)[^\s/%]+")
PATH_RULE: Final = "may not be '.' or '..', nor hold '/', '%', blanks or characters that cannot be seen"


def name_faults(kind: str, group: str, key: str, name: str) -> tuple[str, ...]:
    """What is wrong with a name, as Kubernetes says it; `key` is name, generateName or namespace."""
    if not name:
        return ()
    if key == "generateName" and len(name) > 1 and name.endswith("-"):
        name = name[:-2] + "a"  # as Kubernetes does: what it appends comes behind the dash
    if key == "namespace" or (kind, group) == ("Namespace", ""):
        return dns_label_faults(name)
    if (kind, group) in NATIVE and group != KUEUE_CONFIG:
        return dns_subdomain_faults(name)
    return () if _PATH_SEGMENT.fullmatch(name) and not HIDDEN.search(name) else (PATH_RULE,)
