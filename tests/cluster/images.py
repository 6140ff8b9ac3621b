"""Container images made from what the machine has: no registry, no daemon, a tar file to import."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..engines import build
from ..runtime import real_mpi
from .layout import IMAGES

SHELL_COMMANDS = (
    "sh",
    "sleep",
    "cat",
    "echo",
    "env",
    "ls",
    "mkdir",
    "seq",
    "tail",
    "test",
    "true",
    "false",
    "kill",
    "dd",
)
GPUFLOW = Path(__file__).resolve().parents[2] / "gpuflow"
RUNNER = "#!/usr/local/bin/python3\nimport sys\nfrom gpuflow.runtime.supervise.main import main\nsys.exit(main())\n"
PATH = "/usr/local/bin:/usr/bin:/bin"
# Folders of a Python library that no test step imports.
LEFT_OUT = {
    "test",
    "tests",
    "site-packages",
    "__pycache__",
    "idlelib",
    "tkinter",
    "ensurepip",
    "turtledemo",
    "lib2to3",
}


@dataclass(frozen=True)
class Content:
    """The files of an image (path inside -> path here), links (path -> target), scripts (path -> text)."""

    files: Mapping[str, Path]
    links: Mapping[str, str]
    scripts: Mapping[str, str] = field(default_factory=dict)
    entrypoint: tuple[str, ...] = ()
    user: str = ""


@functools.cache
def archive(image: str) -> Path:
    """The docker-archive of one of `IMAGES`, made when it is not in the cache or its sources have changed."""
    content = CONTENTS[image]()
    folder = build.cache() / "images"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{image}-{_fingerprint(content)}.tar"
    if not path.exists():
        partial = path.with_name(f".{path.name}.{os.getpid()}")
        _write(partial, IMAGES[image], content)
        partial.replace(path)
        for old in folder.glob(f"{image}-*.tar"):
            if old != path:
                old.unlink()
    return path


def _busybox() -> Content:
    program = Path(shutil.which("busybox") or "/bin/busybox")
    links = {f"bin/{command}": "busybox" for command in SHELL_COMMANDS}
    return Content({"bin/busybox": program}, links)


def _pause() -> Content:
    return replace(_busybox(), entrypoint=("/bin/busybox", "sleep", "2147483647"))


def _argoexec() -> Content:
    base = _busybox()
    files = {**base.files, "bin/argoexec": build.binary("argoexec")}
    return replace(base, files=files, entrypoint=("/bin/argoexec",))


def _kfp(program: str, inside: str) -> Content:
    """One of KFP's programs. A number for the user: Kubernetes refuses a name, or none, where root is forbidden."""
    base = _busybox()
    files = {**base.files, inside: build.binary(program)}
    return replace(base, files=files, entrypoint=(f"/{inside}",), user="65532")


def _python() -> Content:
    """This machine's own Python with its library, at the same paths, and every shared object it needs."""
    base, prefix = _busybox(), Path(sys.base_prefix)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    program = prefix / "bin" / version
    library = sorted(_library(prefix / "lib" / version))
    objects = [program, *(path for path in library if path.suffix == ".so")]
    files = {str(path)[1:]: path for path in (program, *library, *_shared_objects(objects))}
    links = {"usr/local/bin/python3": str(program), "usr/local/bin/python": str(program)}
    return Content({**base.files, **files}, {**base.links, **links})


def _gpuflow() -> Content:
    """The Python image with this checkout's gpuflow, as far as the standard library carries it."""
    base, package = _python(), GPUFLOW.name
    place = f"{sys.base_prefix[1:]}/lib/python{sys.version_info.major}.{sys.version_info.minor}/{package}"
    sources = {f"{place}/{path.relative_to(GPUFLOW)}": path for path in sorted(_library(GPUFLOW))}
    scripts = {"usr/local/bin/gpuflow-run": RUNNER}
    return replace(base, files={**base.files, **sources}, scripts=scripts)


def serializers() -> dict[str, Path]:
    """Packages that pickle what the standard library cannot, as far as this machine has them: name -> folder."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    homes = [*sorted(GPUFLOW.parent.glob(".venvs/*")), Path(sys.base_prefix)]
    places = [home / "lib" / version / "site-packages" / name for name in ("dill", "cloudpickle") for home in homes]
    return {place.name: place for place in reversed(places) if place.is_dir()}


def _serializers() -> Content:
    """The Python image with those packages."""
    base = _python()
    place = f"{sys.base_prefix[1:]}/lib/python{sys.version_info.major}.{sys.version_info.minor}"
    found = {
        f"{place}/{name}/{path.relative_to(folder)}": path
        for name, folder in serializers().items()
        for path in sorted(_library(folder))
    }
    return replace(base, files={**base.files, **found})


def _stores() -> Content:
    """The gpuflow image with what speaks to object stores: s3fs and all that it needs."""
    base = _gpuflow()
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    home = GPUFLOW.parent / ".venvs" / "runtime" / "lib" / version / "site-packages"
    if not home.is_dir():
        raise FileNotFoundError(f"the image of object stores is made from {home}; make .venvs/runtime/.ready")
    place = f"{sys.base_prefix[1:]}/lib/{version}"
    found = {f"{place}/{path.relative_to(home)}": path for name in needed(home, "s3fs") for path in _files(home, name)}
    objects = [path for path in found.values() if path.suffix == ".so"]
    shared = {str(path)[1:]: path for path in _shared_objects(objects)} if objects else {}
    return replace(base, files={**base.files, **shared, **found})


MPI_PACKAGES = ("openmpi-bin", "openmpi-common", "libopenmpi3", "mpich", "libmpich12")
MPI_PROGRAMS = {"openmpi": "usr/local/bin/sum-openmpi", "mpich": "usr/local/bin/sum-mpich"}
"""Where the image has the program of each implementation; see `real_mpi`."""


def _mpi() -> Content:
    """The gpuflow image with Open MPI and MPICH of this Debian, and a program for each."""
    base = _gpuflow()
    listed = subprocess.run(["dpkg", "-L", *MPI_PACKAGES], text=True, capture_output=True, check=False)
    if listed.returncode:
        raise FileNotFoundError(f"the image of MPI is made from Debian's packages: {listed.stderr.strip()}")
    paths = [
        Path(line) for line in listed.stdout.splitlines() if not line.startswith(("/usr/share/doc", "/usr/share/man"))
    ]
    found = {str(path)[1:]: path for path in paths if path.is_file()}
    folder = build.cache() / "images"
    for name, inside in MPI_PROGRAMS.items():
        mpi, program = real_mpi.installed(name), folder / f"sum-{name}"
        if mpi is None:
            raise FileNotFoundError(real_mpi.LACKING.format(name))
        if not program.exists():
            real_mpi.compile_to(program, mpi.mpicc)
        found[inside] = program
    objects = [path for path in found.values() if os.access(path, os.X_OK) or ".so" in path.name]
    shared = {str(path)[1:]: path for path in _shared_objects(objects)}
    return replace(base, files={**base.files, **shared, **found})


def needed(home: Path, name: str) -> list[str]:
    """A package of an environment and all that it needs there, by their names."""
    known = {_plain(each.name): each for each in importlib.metadata.distributions(path=[str(home)])}
    wanted, found = [name], []
    while wanted:
        name = _plain(wanted.pop())
        if name in found or name not in known:
            continue
        found.append(name)
        lines = [line for line in known[name].requires or () if "extra ==" not in line]
        wanted += [re.split(r"[^A-Za-z0-9._-]", line)[0] for line in lines]
    return sorted(found)


def _files(home: Path, name: str) -> Iterator[Path]:
    known = {_plain(each.name): each for each in importlib.metadata.distributions(path=[str(home)])}
    for each in known[name].files or ():
        path = Path(str(each.locate()))
        if home in path.parents and path.is_file() and not LEFT_OUT & set(path.relative_to(home).parts):
            yield path


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _library(folder: Path) -> Iterator[Path]:
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name not in LEFT_OUT and not name.startswith("config-")]
        yield from (Path(place, name) for name in files if not name.endswith((".pyc", ".a")))


def _shared_objects(objects: list[Path]) -> set[Path]:
    """What the loader would open for these files, the loader itself included."""
    found = subprocess.run(["ldd", *map(str, objects)], text=True, capture_output=True, check=False).stdout
    return {Path(path) for path in re.findall(r"(?:=> |^\s+)(/\S+) \(0x", found, re.MULTILINE)}


CONTENTS: dict[str, Callable[[], Content]] = {
    "pause": _pause,
    "busybox": _busybox,
    "argoexec": _argoexec,
    "kfp-driver": lambda: _kfp("kfp-driver", "bin/driver"),
    "kfp-launcher": lambda: _kfp("kfp-launcher", "bin/launcher-v2"),
    "python": _python,
    "gpuflow": _gpuflow,
    "serializers": _serializers,
    "stores": _stores,
    "mpi": _mpi,
}


def _fingerprint(content: Content) -> str:
    user = (content.user,) if content.user else ()
    small = (sorted(content.links.items()), sorted(content.scripts.items()), content.entrypoint, *user)
    digest = hashlib.sha256(repr(small).encode())
    for inside, path in sorted(content.files.items()):
        status = path.stat()
        digest.update(f"{inside}\0{status.st_size}\0{status.st_mtime_ns}\0".encode())
    return digest.hexdigest()[:16]


def _write(path: Path, reference: str, content: Content) -> None:
    layer = path.with_name(f"{path.name}.layer")
    try:
        with tarfile.open(layer, "w") as tar:
            _folder(tar, "tmp", 0o1777)
            for inside, source in sorted(content.files.items()):
                entry = tarfile.TarInfo(inside)
                source = source.resolve()
                entry.size, entry.mode = source.stat().st_size, 0o755 if os.access(source, os.X_OK) else 0o644
                with source.open("rb") as stream:
                    tar.addfile(entry, stream)
            for inside, text in sorted(content.scripts.items()):
                _bytes(tar, inside, text.encode(), 0o755)
            for inside, target in sorted(content.links.items()):
                entry = tarfile.TarInfo(inside)
                entry.type, entry.linkname = tarfile.SYMTYPE, target
                tar.addfile(entry)
        with layer.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        settings = {"Env": [f"PATH={PATH}"], "Entrypoint": list(content.entrypoint), "WorkingDir": "/"}
        if content.user:
            settings["User"] = content.user
        config = json.dumps(
            {
                "architecture": {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine],
                "os": "linux",
                "config": settings,
                "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
            }
        ).encode()
        manifest = [{"Config": "config.json", "RepoTags": [reference], "Layers": ["layer.tar"]}]
        with tarfile.open(path, "w") as tar:
            _bytes(tar, "config.json", config)
            tar.add(layer, "layer.tar")
            _bytes(tar, "manifest.json", json.dumps(manifest).encode())
    finally:
        layer.unlink(missing_ok=True)


def _folder(tar: tarfile.TarFile, name: str, mode: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode = tarfile.DIRTYPE, mode
    tar.addfile(entry)


def _bytes(tar: tarfile.TarFile, name: str, data: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(data), mode
    tar.addfile(entry, io.BytesIO(data))
