"""Which version of an engine a site says it runs."""

from __future__ import annotations

from gpuflow.errors import Finding, Where
from gpuflow.site import Site

Version = tuple[int, int]


def version_at(site: Site, engine: str) -> Version | None:
    """The engine's version at the site; None where it says none that can be read."""
    return site.engine(engine).release


def unsuited(site: Site, engine: str, title: str, oldest: Version, code: str, example: str) -> Finding | None:
    """A site whose engine would drop or misread what is written, or that says no version. `example`: one that is."""
    said, found, least = site.engine(engine).version, version_at(site, engine), ".".join(map(str, oldest))
    if said is None or (found is not None and found >= oldest):
        return None
    what = f"is older than {least}" if found is not None else f"is not a version such as {example}"
    return Finding(
        code,
        f'site "{site.name}" runs {title} {said}, which {what}',
        Where(site.source.file),
        f"artifacts are for {title} {least} and later: correct engines.{engine}.version, or upgrade {title}",
    )
