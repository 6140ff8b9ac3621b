"""Tasks of gpuflow's own that look after a gang: the ranks are pods of a JobSet, which stands in their command."""

from __future__ import annotations

import importlib
from typing import Any

from gpuflow.demands.model import Demand
from gpuflow.readers.documents import Document, kind_of
from gpuflow.readers.frame import Library, Options, Passive
from gpuflow.readers.gangs import manifest_in
from gpuflow.readers.kfp.message import Message
from gpuflow.readers.kinds import READERS


def gang_manifest(container: Message) -> dict[str, Any] | None:
    """The JobSet that a container creates, as the kubelet of its pod hands it over; None for other containers."""
    return manifest_in(gang_words(container))


def gang_words(container: Message) -> list[str]:
    """The command of a container."""
    return [*container.texts("command"), *container.texts("args")]


def ranks_of(manifest: dict[str, Any], at: Message, library: Library, options: Options) -> Demand | None:
    """What the pods of a gang ask for; None for a kind that nobody reads."""
    kind, group = kind_of(manifest)
    if (kind, group) not in READERS:
        return None
    read = importlib.import_module(READERS[(kind, group)].module).demand_of
    found: Demand | Passive = read(Document(manifest, at.document.file, kind, group, 0), library, options)
    return None if isinstance(found, Passive) else found
