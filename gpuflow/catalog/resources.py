"""Kubernetes resource names of NVIDIA's device plugin: what a pod must request to get a GPU or a slice.

| strategy | whole GPU        | MIG slice                                             |
|----------|------------------|-------------------------------------------------------|
| none     | `nvidia.com/gpu` | not served                                            |
| single   | `nvidia.com/gpu` | `nvidia.com/gpu`; every GPU of the node is cut alike  |
| mixed    | `nvidia.com/gpu` | `nvidia.com/mig-<profile>`, with `+` written as `.`   |

Sharing keeps the name unless the plugin runs with `renameByDefault`, which adds `.shared`.
"""

from __future__ import annotations

from typing import Final, Literal

from gpuflow.catalog.profile_name import BadProfileName, dotted, parse_profile, undotted

Strategy = Literal["none", "single", "mixed"]
Sharing = Literal["time-slicing", "mps"]

WHOLE_GPU: Final = "nvidia.com/gpu"
MIG_PREFIX: Final = "nvidia.com/mig-"
SHARED: Final = ".shared"


class NotServed(ValueError):
    """The device plugin cannot hand this out in the way the site runs it."""


def resource_name(
    profile: str | None = None,
    *,
    strategy: Strategy = "none",
    sharing: Sharing | None = None,
    renamed: bool = False,
) -> str:
    """The resource a pod requests for a whole GPU, or for one MIG slice when `profile` is given."""
    if profile is not None and strategy == "none":
        why = f'MIG slice "{profile}" cannot be requested: the site\'s MIG strategy is none'
        raise NotServed(f"{why}; set it to single or mixed")
    if profile is not None and sharing == "mps":
        why = f'MIG slice "{profile}" cannot be shared by MPS: the device plugin does that for whole GPUs only'
        raise NotServed(f"{why}; share it by time-slicing")
    name = WHOLE_GPU
    if profile is not None and strategy == "mixed":
        name = MIG_PREFIX + dotted(str(parse_profile(profile)))
    return name + SHARED if sharing and renamed else name


def profile_of_resource(resource: str) -> str | None:
    """The profile behind `nvidia.com/mig-1g.10gb.me` (`1g.10gb+me`); `None` for any other resource."""
    if not resource.startswith(MIG_PREFIX):
        return None
    try:
        return str(parse_profile(undotted(resource.removeprefix(MIG_PREFIX).removesuffix(SHARED))))
    except BadProfileName:
        return None
