"""Folders of PyTorch's distributed checkpoint: whether the files that their `.metadata` names are all there.

`.metadata` is a pickle and is never loaded here: the names of the files stand in it as plain text. A folder that lacks
one of them was written by several ranks, and is a part of a checkpoint, not one.
"""

from __future__ import annotations

import posixpath

from gpuflow.runtime.files import open_regular

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

METADATA = ".metadata"
_NAME = rb"__[0-9]+_[0-9]+\.distcp"
_LONGEST = 64
"""Bytes that a name has at most: so many of one piece are looked at again with the next."""
_PIECE = 1 << 20


def lacking(indexes: Mapping[str, str], paths: Iterable[str]) -> str | None:
    """The first file that an index names and that is not there. `indexes`: path in the checkpoint -> where to read it.

    An index that cannot be read any more says nothing: the checkpoint is then gone, too.
    """
    there = set(paths)
    for relative in sorted(indexes):
        folder = posixpath.dirname(relative)
        try:
            named = names(indexes[relative])
        except OSError:
            continue
        for name in sorted(named):
            if posixpath.join(folder, name) not in there:
                return posixpath.join(folder, name)
    return None


def names(path: str) -> set[str]:
    """The files that an index names."""
    import re

    found: set[str] = set()
    rest = b""
    with open(open_regular(path), "rb") as file:
        while piece := file.read(_PIECE):
            window = rest + piece
            found.update(name.decode("ascii") for name in re.findall(_NAME, window))
            rest = window[-_LONGEST:]
    return found
