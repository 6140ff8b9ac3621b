"""Parts of a run that no file shows: what they ask of the cluster decides, and is not known."""

from __future__ import annotations

from collections.abc import Iterator

from gpuflow.demands import Demand
from gpuflow.errors import Finding


def unseen_parts(demand: Demand) -> Iterator[Finding]:
    """GF701: one for each part that is not known."""
    for part in demand.unseen:
        what = "what runs" if part.resource is None else f"how much {part.resource} it asks for"
        if part.is_placement:
            what = "where it may run"
        text = f"{part.step}: {what} is not known: {part.because}"
        yield Finding("GF701", text, part.where, part.hint, severity="warning")
