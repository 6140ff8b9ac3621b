"""Names that come from a store: a file name, a path below a folder, a link that stays in it.

What passes here can be made below a folder of ours on any Linux file system, and leads nowhere else.
"""

from __future__ import annotations

import posixpath

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuflow.runtime.records import File

NAME_MOST = 255
"""Bytes of one name, as file systems have it."""
STAGED = ".gpuflow-input"
"""The folder at an input's place in which it is gathered: nothing that is kept may have this name at its top."""
PATH_MOST = 3000
"""Bytes of a path below its folder; the system takes 4096 with the folder."""


def is_name(value: object) -> bool:
    """One part of a path, not hidden."""
    return isinstance(value, str) and _is_part(value) and not value.startswith(".")


def is_path(value: object) -> bool:
    """A path below a folder, or nothing for the one file itself."""
    if not isinstance(value, str) or len(value) > PATH_MOST:
        return False
    return not value or all(_is_part(part) for part in value.split("/"))


def leads_out(relative: str, link: str) -> bool:
    """Whether a link at a path below a folder might point out of it.

    `..` may only come first, and no more often than there are folders above: after a name it would be taken from
    wherever that name leads, which may be another link. What only goes down from inside stays inside, link by link.
    """
    if not link or len(link) > PATH_MOST or "\0" in link or posixpath.isabs(link) or not _is_utf_8(link):
        return True
    parts = [part for part in link.split("/") if part not in ("", ".")]
    up = 0
    while up < len(parts) and parts[up] == "..":
        up += 1
    return ".." in parts[up:] or up > relative.count("/")


def flaw(files: Iterable[File], *, single: bool) -> str | None:
    """Why files and links cannot all be made below one folder, or as one `single` file; None when they can."""
    listed = list(files)
    paths = {file.path for file in listed}
    if len(paths) != len(listed):
        return "a file is named twice"
    if single and not (len(listed) == 1 and "/" not in listed[0].path and listed[0].sha256):
        return "not one file"
    if not single and "" in paths:
        return "a file without a name"
    leaves = {file.path for file in listed if not file.directory}
    above = {path.rpartition("/")[0] for path in paths}
    seen: set[str] = set()
    while above:
        seen |= above
        inside = sorted(above & leaves - {""})
        if inside:
            return f"something lies below {inside[0]!r}, a file or a link"[:200]
        above = {path.rpartition("/")[0] for path in above} - seen
    for file in listed:
        if file.link is not None and leads_out(file.path, file.link):
            return f"{file.path!r} is a link out of its folder to {file.link!r}"[:300]
    return None


def _is_part(value: str) -> bool:
    return value not in ("", ".", "..") and "/" not in value and "\0" not in value and _is_utf_8(value, NAME_MOST)


def _is_utf_8(value: str, most: int = 4 * PATH_MOST) -> bool:
    try:
        return len(value.encode("utf-8")) <= most
    except UnicodeEncodeError:
        return False
