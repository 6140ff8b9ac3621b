"""Which KFP an artifact is for.

What is written for 2.17 is read by later ones too. One thing is new after 2.17: containers beside the step's own
(`initContainers` of the executor config, also as native sidecars). An older backend drops them without a word, so they
are written only where the site says that its KFP is newer.
"""

from __future__ import annotations

import re

from gpuflow.errors import Finding, Where
from gpuflow.site import Site
from gpuflow.targets.kubeflow.facts import FACTS

OLDEST = (2, 17)
"""What is written for when the site does not say."""
WITH_CONTAINERS = (2, 18)
"""The first with containers beside the step's own: the release that follows 2.17."""
_VERSION = re.compile(r"v?(\d+)\.(\d+)(?:[.+-].*)?")


def version(site: Site) -> tuple[int, int]:
    """The site's KFP."""
    found = _VERSION.fullmatch(site.engine(FACTS.name).version or "")
    return (int(found[1]), int(found[2])) if found is not None else OLDEST


def adds_containers(site: Site) -> bool:
    """Whether the site's KFP adds containers to a step's pod."""
    return version(site) >= WITH_CONTAINERS


def version_finding(site: Site) -> Finding | None:
    """A site whose KFP would drop or misread what is written."""
    said = site.engine(FACTS.name).version
    if said is None or (_VERSION.fullmatch(said) and version(site) >= OLDEST):
        return None
    what = "is older than 2.17" if _VERSION.fullmatch(said) else "is not a version such as 2.17"
    return Finding(
        "GF397",
        f'site "{site.name}" runs KFP {said}, which {what}',
        Where(site.source.file),
        "artifacts are for KFP 2.17 and later: correct engines.kubeflow.version, or upgrade KFP",
    )
