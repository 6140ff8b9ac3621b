"""Which kind of store a path or URL names."""

from __future__ import annotations

from gpuflow.runtime.stores.folder_store import Folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuflow.runtime.stores.store import Store


def open_store(where: str) -> Store:
    """The store at a path or URL."""
    scheme, found, _ = where.partition("://")
    if not found:
        return Folder(where)
    if scheme.lower() == "file":
        return Folder(where[len("file://") :])
    from gpuflow.runtime.stores.fsspec_store import Remote

    return Remote(where)
