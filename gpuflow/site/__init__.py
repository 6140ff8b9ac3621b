"""How a cluster spells things: `Site.load("gke")`, `Site.load("site.yaml")`."""

from gpuflow.site.model import Site, presets

__all__ = ["Site", "presets"]
