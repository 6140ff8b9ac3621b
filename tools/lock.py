"""Write locks/<environment>.txt: every package at one version, with the hashes of its files. `make lock` runs this.

    python tools/lock.py 'core=.[dev]' 'argo=.[argo,dev] pre-commit'

Versions that stand in a lock are kept where they still go together; `--upgrade` takes the newest instead. Each Python
that gpuflow supports resolves for itself, because what a package needs may depend on it. Files come from the index that
pip is configured for, and no address of it is written down.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from pip._internal.commands import create_command
from pip._internal.index.collector import parse_links
from pip._internal.models.link import Link
from pip._vendor.packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from pip._vendor.packaging.version import InvalidVersion

ROOT = Path(__file__).parents[1]
LOCKS = ROOT / "locks"
PYTHONS = ("3.11", "3.12", "3.13")
BUILD = "setuptools"
"""What builds gpuflow, and what is only published as source. It is in every lock, so that no build fetches anything."""
ENTRY = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", re.MULTILINE)
HEADER = """\
# Made by `make lock`; do not edit. {what}
# Linux with CPython {pythons}: pip install --require-hashes --no-build-isolation --no-deps -r it, after build.txt.
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("environments", nargs="+", metavar="NAME=REQUIREMENTS")
    parser.add_argument("--upgrade", action="store_true", help="newest versions instead of those in the lock")
    parser.add_argument("--as-pinned", action="append", default=[], metavar="NAME", help="new hashes, same versions")
    parser.add_argument("--oldest", action="append", default=[], metavar="NAME", help="for the oldest Python only")
    args = parser.parse_args()
    LOCKS.mkdir(exist_ok=True)
    index = Index()
    for word in args.environments:
        name, _, requirements = word.partition("=")
        file = LOCKS / f"{name}.txt"
        if name in args.as_pinned:
            chosen = {package: {version: {PYTHONS[0]}} for package, version in pinned(name).items()}
            pythons = PYTHONS[:1]
        else:
            # What users install is what was tested: install-argo has the versions of argo.
            same = pinned(name.removeprefix("install-")) if name.startswith("install-") else {}
            kept = {} if args.upgrade else pinned(name)
            build = pinned("build") if name != "build" else {}
            pythons = PYTHONS[:1] if name in args.oldest else PYTHONS
            chosen = resolved(requirements.split(), {**kept, **build, **same}, pythons)
        file.write_text(written(requirements, chosen, pythons, index), encoding="utf-8")
        print(f"wrote {file.relative_to(ROOT)}: {len(chosen)} packages", flush=True)
    return 0


def pinned(name: str) -> dict[str, str]:
    """The versions that stand in a lock."""
    file = LOCKS / f"{name}.txt"
    found = ENTRY.findall(file.read_text(encoding="utf-8")) if file.exists() else []
    return {canonicalize_name(package): version for package, version in found}


Chosen = dict[str, dict[str, set[str]]]
"""Package, version, and the Pythons that take it."""


def resolved(requirements: list[str], pins: dict[str, str], pythons: Iterable[str]) -> Chosen:
    """What pip of every Python would install; a later Python keeps to what an earlier one took."""
    chosen: Chosen = {}
    for python in pythons:
        taken = {name: next(iter(versions)) for name, versions in chosen.items()}
        for name, version in report(python, requirements, {**pins, **taken}).items():
            chosen.setdefault(name, {}).setdefault(version, set()).add(python)
    return chosen


def report(python: str, requirements: list[str], pins: dict[str, str]) -> dict[str, str]:
    with tempfile.TemporaryDirectory() as folder:
        constraints, answer = Path(folder) / "pins.txt", Path(folder) / "report.json"
        constraints.write_text("".join(f"{name}=={version}\n" for name, version in pins.items()))
        command = [f"python{python}", "-I", "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed"]
        command += ["--disable-pip-version-check", "--report", str(answer), "-c", str(constraints), BUILD]
        try:
            subprocess.run([*command, *requirements], cwd=ROOT, check=True)
        except FileNotFoundError:
            sys.exit(f"python{python} is not here; a lock is resolved by Python {', '.join(PYTHONS)}")
        except subprocess.CalledProcessError:
            sys.exit(f"Python {python} cannot resolve {' '.join(requirements)} with these versions; try --upgrade")
        found = [item["metadata"] for item in json.loads(answer.read_text())["install"]]
    return {canonicalize_name(each["name"]): each["version"] for each in found if each["name"] != "gpuflow"}


class Index:
    """The files of a project with their hashes, by way of the index, proxy and certificates that pip uses."""

    def __init__(self) -> None:
        self._command = create_command("install")
        self._options, _ = self._command.parse_args([])
        self._pages: dict[str, list[Link]] = {}

    def hashes(self, name: str, version: str) -> list[str]:
        """Of every file of this version that Linux or macOS can use, and of its source."""
        found = {link.hash for link in self._page(name) if link.hash_name == "sha256" and _usable(link, name, version)}
        if not found:
            sys.exit(f"the index has no file with a hash for {name} {version}")
        return sorted(found)

    def _page(self, name: str) -> list[Link]:
        if name not in self._pages:
            with self._command.main_context():
                session = self._command.get_default_session(self._options)
                collector = self._command._build_package_finder(self._options, session)._link_collector
                pages = [
                    collector.fetch_response(Link(url)) for url in collector.search_scope.get_index_urls_locations(name)
                ]
            self._pages[name] = [link for page in pages if page for link in parse_links(page)]
        return self._pages[name]


def _usable(link: Link, name: str, version: str) -> bool:
    try:
        if link.filename.endswith(".whl"):
            project, number, _, tags = parse_wheel_filename(link.filename)
            if not any(_fits(tag.interpreter, tag.abi, tag.platform) for tag in tags):
                return False
        else:
            project, number = parse_sdist_filename(link.filename)
    except (InvalidWheelFilename, InvalidSdistFilename, InvalidVersion):
        return False
    return project == name and str(number) == version


def _fits(interpreter: str, abi: str, platform: str) -> bool:
    pythons = {f"cp{python.replace('.', '')}" for python in PYTHONS}
    right = interpreter in pythons or interpreter.startswith("py3") or abi == "abi3"
    return right and (platform == "any" or "linux" in platform or platform.startswith("macosx"))


def written(requirements: str, chosen: Chosen, pythons: Iterable[str], index: Index) -> str:
    lines = [HEADER.format(what=requirements, pythons=", ".join(pythons))]
    for name in sorted(chosen):
        for version, takers in sorted(chosen[name].items()):
            marker = _marker(takers, tuple(pythons))
            hashes = "".join(f" \\\n    --hash=sha256:{each}" for each in index.hashes(name, version))
            lines.append(f"{name}=={version}{marker}{hashes}\n")
    return "".join(lines)


def _marker(takers: set[str], pythons: tuple[str, ...]) -> str:
    if takers == set(pythons):
        return ""
    if takers == set(pythons[-len(takers) :]):
        return f' ; python_version >= "{min(takers)}"'
    if takers == set(pythons[: len(takers)]):
        return f' ; python_version < "{pythons[len(takers)]}"'
    return " ; " + " or ".join(f'python_version == "{python}"' for python in sorted(takers))


if __name__ == "__main__":
    sys.exit(main())
