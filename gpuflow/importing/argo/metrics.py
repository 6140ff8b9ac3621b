"""Prometheus metrics of Argo, which stay Argo's own words."""

from __future__ import annotations

from typing import Any

from gpuflow.importing.listing import Listing, Place
from gpuflow.importing.plain import mapping, maps, plain


def metric_words(metrics: Any, listing: Listing, place: Place) -> list[dict[str, Any]]:
    """The metrics of a workflow or of a template."""
    found = []
    listing.fields(metrics, ("prometheus",), "metrics", place)
    for each in maps(mapping(metrics).get("prometheus")):
        listing.fields(each, ("name", "help", "labels", "when", "counter", "gauge", "histogram"), "metric", place)
        given = plain(each)
        metric = {key: given[key] for key in ("name", "help", "when", "gauge") if given.get(key)}
        if given.get("labels"):
            metric["labels"] = {str(pair.get("key")): str(pair.get("value")) for pair in maps(given["labels"])}
        if given.get("counter"):
            metric["counter"] = str(mapping(given["counter"]).get("value"))
        if given.get("histogram"):
            histogram = mapping(given["histogram"])
            metric["histogram"] = {"value": str(histogram.get("value")), "buckets": histogram.get("buckets") or []}
        found.append(metric)
    return found
