"""How a cluster spells things: `Site.load("gke")`, `Site.load("site.yaml")`."""

from gpuflow.site.model import Site, load_site, presets

__all__ = ["Site", "load_site", "presets"]
