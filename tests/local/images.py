"""Images for tests, made of this machine's own Python and shell: no registry is needed."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from pathlib import Path

PYTHON = Path(os.path.realpath(getattr(sys, "_base_executable", sys.executable)))
STDLIB = Path(sysconfig.get_path("stdlib"))
LEFT_OUT = {"test", "__pycache__", "idlelib", "dist-packages", "site-packages", "ensurepip", "tkinter", "lib2to3"}
EXTENSIONS_LEFT_OUT = ("_tkinter", "_sqlite3", "_test", "_xx", "nis", "config-")
TOOLS = ("sh", "sleep", "cat", "mkdir", "mv")

CONTAINERS_CONF = """\
[containers]
netns = "host"
log_driver = "k8s-file"
default_ulimits = ["nofile=1024:1024", "nproc=4096:4096"]
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
{runtime}
"""
STORAGE_CONF = """\
[storage]
driver = "vfs"
runroot = "{folder}/run"
graphroot = "{folder}/graph"
"""


def podman_environments(folder: Path) -> list[dict[str, str]]:
    """Variables for a podman of its own, which shares no image and no container with the user's: one for each program
    that may start containers here."""
    found = []
    for runtime in ("", *(name for name in ("crun", "runc") if shutil.which(name))):
        conf, storage = folder / f"containers-{runtime}.conf", folder / "storage.conf"
        conf.write_text(CONTAINERS_CONF.format(runtime=f'runtime = "{runtime}"' if runtime else ""))
        storage.write_text(STORAGE_CONF.format(folder=folder))
        found.append({"CONTAINERS_CONF": str(conf), "CONTAINERS_STORAGE_CONF": str(storage)})
    return found


def image_tar(with_python: bool) -> bytes:
    """The root of an image: a shell, a few tools, and this machine's Python with its libraries."""
    programs = [Path(os.path.realpath(shutil.which(name) or "")) for name in TOOLS]
    named = {f"/bin/{name}": program for name, program in zip(TOOLS, programs, strict=True)}
    modules = []
    if with_python:
        named["/usr/bin/python3"] = PYTHON
        modules = [
            file
            for file in STDLIB.rglob("*")
            if file.is_file()
            and not LEFT_OUT & set(file.relative_to(STDLIB).parts)
            and not any(part.startswith(EXTENSIONS_LEFT_OUT) for part in (file.name, file.parent.name))
        ]
    files = {str(file): file for file in modules} | named
    linked = [*named.values(), *(file for file in modules if file.suffix == ".so")]
    said = subprocess.run(["ldd", *map(str, linked)], capture_output=True, text=True, check=False).stdout
    files |= {word: Path(os.path.realpath(word)) for word in said.split() if word.startswith("/") and word[-1] != ":"}
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for folder, mode in {"tmp": 0o1777, "etc": 0o755, "proc": 0o755, "sys": 0o755, "dev": 0o755}.items():
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, mode
            tar.addfile(entry)
        if with_python and str(PYTHON) != "/usr/bin/python3":  # where it looks for its modules
            files[str(PYTHON)] = PYTHON
        for path, file in sorted(files.items()):
            tar.add(file, path.lstrip("/"))
    return buffer.getvalue()
