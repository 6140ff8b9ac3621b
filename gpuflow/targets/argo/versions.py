"""Which Argo an artifact is for.

3.7 and 4.x read the same fields of nearly everything that is written here: `schedules`, lists of `semaphores`,
expressions with `lastRetry.message` and closures, memoization without outputs. What 4.0 took away (`schedule`, `mutex`,
`semaphore`, `podPriority`) is never written. One field differs: the ConfigMap of a cache has a `key` in 3.7, which its
full schema asks for although nothing reads it, and none in 4.x.
"""

from __future__ import annotations

from typing import Any

from gpuflow.errors import Finding
from gpuflow.site import Site
from gpuflow.targets.versions import Version, unsuited, version_at

OLDEST = (3, 7)
NEWEST = (4, 0)
"""What is written for when the site does not say."""


def version(site: Site) -> Version:
    """The site's Argo."""
    return version_at(site, "argo") or NEWEST


def version_finding(site: Site) -> Finding | None:
    """A site whose Argo would drop or misread what is written."""
    return unsuited(site, "argo", "Argo", OLDEST, "GF308", "4.0")


def for_version(manifest: dict[str, Any], site: Site) -> dict[str, Any]:
    """The manifest in the words of the site's Argo; as given, it is for 4.x."""
    if version(site) >= NEWEST:
        return manifest
    if "workflowSpec" in manifest["spec"]:
        return {**manifest, "spec": {**manifest["spec"], "workflowSpec": _for_3(manifest["spec"]["workflowSpec"])}}
    return {**manifest, "spec": _for_3(manifest["spec"])}


def _for_3(spec: dict[str, Any]) -> dict[str, Any]:
    return {**spec, "templates": [_with_cache_key(template) for template in spec["templates"]]}


def _with_cache_key(template: dict[str, Any]) -> dict[str, Any]:
    if "memoize" not in template:
        return template
    named = {"configMap": {**template["memoize"]["cache"]["configMap"], "key": ""}}
    return {**template, "memoize": {**template["memoize"], "cache": named}}
