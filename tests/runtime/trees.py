"""Trees of files for the tests of artifacts: made from a description, read back as one, and random ones."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from hypothesis import strategies as st

Tree = dict[str, tuple[str, object, int]]
"""By path: ("file", its bytes, its mode), ("link", where to, 0) or ("folder", None, 0)."""

_NAMES = st.one_of(
    st.sampled_from(["a", "b", "d", "e", "manifest.json", "files", ".hidden", "ü ñ", "a b", "%2F", "-x", "#", "[x]*?"]),
    st.text(st.characters(blacklist_characters="/\0", blacklist_categories=["Cs"]), min_size=1, max_size=12),
).filter(lambda name: name not in (".", "..", ".gpuflow-input") and len(name.encode()) <= 200)
_CONTENT = st.one_of(
    st.binary(max_size=200),
    st.just(b""),
    st.builds(lambda head, tail: head + bytes(200_000) + tail, st.binary(max_size=9), st.binary(max_size=9)),
)
_MODES = st.sampled_from([0o644, 0o600, 0o755, 0o444, 0o640, 0o777])


@st.composite
def trees(draw: st.DrawFn) -> Tree:
    """Files that are empty, sparse, of odd names and modes; empty folders; links inside, to files and folders."""
    found: Tree = {}
    folders = [""]
    for _ in range(draw(st.integers(0, 12))):
        above, name = draw(st.sampled_from(folders)), draw(_NAMES)
        path = f"{above}/{name}" if above else name
        if path in found:
            continue
        kind = draw(st.sampled_from(["file", "file", "folder", "link"]))
        if kind == "folder" and path.count("/") < 4:
            found[path] = ("folder", None, 0)
            folders.append(path)
        elif kind == "link":
            target = draw(st.sampled_from([*folders, *(path for path, made in found.items() if made[0] == "file")]))
            if target:
                found[path] = ("link", "../" * above.count("/") + ("../" if above else "") + target, 0)
        else:
            found[path] = ("file", draw(_CONTENT), draw(_MODES))
    return found


def make(tree: Tree, folder: Path) -> Path:
    """Write it. Links last, since what they lead to must be there for some readers."""
    folder.mkdir(parents=True, exist_ok=True)
    for path, (kind, content, mode) in sorted(tree.items(), key=lambda item: item[1][0] == "link"):
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        if kind == "folder":
            place.mkdir(exist_ok=True)
        elif kind == "link":
            place.symlink_to(str(content))
        else:
            assert isinstance(content, bytes)
            with place.open("wb") as file:
                file.write(content.rstrip(b"\0"))
                file.truncate(len(content))
            place.chmod(mode)
    return folder


def read(folder: Path) -> Tree:
    """What lies there."""
    found: Tree = {}
    for above, folders, names in os.walk(folder):
        for name in [*folders, *names]:
            path = Path(above, name)
            status = path.lstat()
            relative = str(path.relative_to(folder))
            if stat.S_ISLNK(status.st_mode):
                found[relative] = ("link", os.readlink(path), 0)
            elif stat.S_ISDIR(status.st_mode):
                found[relative] = ("folder", None, 0)
            else:
                found[relative] = ("file", path.read_bytes(), stat.S_IMODE(status.st_mode))
    return found
