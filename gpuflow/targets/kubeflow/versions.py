"""Which KFP an artifact is for.

What is written for 2.17 is read by later ones too. One thing is new after 2.17: containers beside the step's own
(`initContainers` of the executor config, also as native sidecars). An older backend drops them without a word, so they
are written only where the site says that its KFP is newer.
"""

from __future__ import annotations

from gpuflow.errors import Finding
from gpuflow.site import Site
from gpuflow.targets.kubeflow.facts import FACTS
from gpuflow.targets.versions import Version, unsuited, version_at

OLDEST = (2, 17)
"""What is written for when the site does not say."""
WITH_CONTAINERS = (2, 18)
"""The first with containers beside the step's own: the release that follows 2.17."""


def version(site: Site) -> Version:
    """The site's KFP."""
    return version_at(site, FACTS.name) or OLDEST


def adds_containers(site: Site) -> bool:
    """Whether the site's KFP adds containers to a step's pod."""
    return version(site) >= WITH_CONTAINERS


def version_finding(site: Site) -> Finding | None:
    """A site whose KFP would drop or misread what is written."""
    return unsuited(site, FACTS.name, "KFP", OLDEST, "GF397", "2.17")
