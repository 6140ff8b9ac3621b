"""How a cluster spells things: `Site.load("gke")`, `Site.load("site.yaml")`."""

from gpuflow.site.loading import load_site, presets
from gpuflow.site.model import Site

__all__ = ["Site", "load_site", "presets"]
