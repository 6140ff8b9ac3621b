"""Build what is released: wheel and source archive, a list of packages, an audit, checksums. `make release` runs this.

Everything comes from the commit, not from the working tree, and is built twice: when the two differ nothing is
released. What an index would refuse in the metadata is refused here. The list is CycloneDX JSON, made from the locks.
`--tag v1.2.3` also tags the commit, when everything else is in order. Nothing is published, and no tag is pushed.
"""

from __future__ import annotations

import argparse
import base64
import csv
import gzip
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import uuid
import zipfile
from pathlib import Path
from typing import Any

from packaging.metadata import Metadata

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
LOCKED = re.compile(r"^([a-z0-9.-]+)==([^\s;\\]+)", re.MULTILINE)
BUILD = "import sys, setuptools.build_meta as b; out = sys.argv[1]; b.build_sdist(out); b.build_wheel(out)"


def main(tag: str | None = None) -> int:
    commit = git("rev-parse", "HEAD")
    obstacles = untaggable(tag or f"v{version_of(commit)}", commit)
    if tag is not None and obstacles:
        print(f"{tag} is not made, and nothing is built:", *obstacles, sep="\n  ")
        return 1
    if git("status", "--porcelain"):
        print("the working tree has changes that are not committed: they are not part of what is built")
    epoch = int(git("log", "-1", "--format=%ct", commit))
    first, second = built(commit, epoch), built(commit, epoch)
    different = sorted(name for name in {*first, *second} if first.get(name) != second.get(name))
    if sorted(name.rpartition(".")[2] for name in first) != ["gz", "whl"]:
        print(f"a source archive and a wheel should have been built, not: {', '.join(sorted(first))}")
        return 1
    if different:
        print(f"built twice with different bytes, so nothing is written: {', '.join(different)}")
        return 1
    problems = metadata_problems(first)
    if problems:
        print("the metadata is not sound, so nothing is written:", *problems, sep="\n  ")
        return 1
    version = next(name for name in first if name.endswith(".tar.gz")).removesuffix(".tar.gz").partition("-")[2]
    first[f"gpuflow-{version}.cdx.json"] = (json.dumps(packages(version, commit), indent=1) + "\n").encode()
    vulnerable, first["audit.txt"] = audited()
    shutil.rmtree(DIST, ignore_errors=True)
    DIST.mkdir()
    sums = [f"{hashlib.sha256(content).hexdigest()}  {name}" for name, content in sorted(first.items())]
    for name, content in {**first, "SHA256SUMS": ("\n".join(sums) + "\n").encode()}.items():
        (DIST / name).write_bytes(content)
    print(f"built twice from {commit}, the same bytes:", *sums, sep="\n  ")
    print("metadata: sound, the same in both")
    print(first["audit.txt"].decode().strip())
    if vulnerable:
        return 1
    if tag is not None:
        git("tag", "--annotate", tag, "--message", f"gpuflow {version}", commit)
        print(f"tagged {commit} as {tag}, here only: git push origin {tag} is for whoever releases it")
    elif obstacles:
        print("not ready for a tag:", *obstacles, sep="\n  ")
    else:
        print(f"to tag it: make release TAG=v{version}")
    return 0


def version_of(commit: str) -> str:
    """The version that a commit says it is."""
    return re.findall(r'__version__ = "([^"]+)"', git("show", f"{commit}:gpuflow/core/version.py"))[0]


def untaggable(tag: str, commit: str) -> list[str]:
    """What keeps a commit from getting this tag."""
    version, found = version_of(commit), []
    if tag != f"v{version}":
        found.append(f"{tag} is not v{version}, the version in gpuflow/core/version.py")
    heading = re.search(rf"^## {re.escape(version)}(?!\S).*$", git("show", f"{commit}:CHANGELOG.md"), re.MULTILINE)
    if heading is None or "unreleased" in heading[0]:
        found.append(f"CHANGELOG.md has no date for {version}")
    if git("status", "--porcelain"):
        found.append("the working tree has changes that are not committed")
    if git("tag", "--list", tag):
        found.append(f"{tag} exists already")
    return found


def metadata_problems(files: dict[str, bytes]) -> list[str]:
    """What a package index would refuse, and what would surprise who installs: in words, or nothing."""
    wheel_name = next(name for name in files if name.endswith(".whl"))
    archive_name = next(name for name in files if name.endswith(".tar.gz"))
    with zipfile.ZipFile(io.BytesIO(files[wheel_name])) as wheel:
        inside = {name: wheel.read(name) for name in wheel.namelist()}
    with tarfile.open(fileobj=io.BytesIO(files[archive_name])) as archive:
        (info,) = [entry for entry in archive if entry.name.count("/") == 1 and entry.name.endswith("/PKG-INFO")]
        stream = archive.extractfile(info)
        of_archive = stream.read() if stream else b""
    folder = next(name.partition("/")[0] for name in inside if name.endswith(".dist-info/METADATA"))
    of_wheel = inside[f"{folder}/METADATA"]
    found = [] if of_wheel == of_archive else ["wheel and source archive have different metadata"]
    try:
        known = Metadata.from_email(of_wheel, validate=True)
    except ExceptionGroup as refusal:
        return [*found, *(str(each) for each in refusal.exceptions)]
    stem = f"{known.name}-{known.version}"
    if not wheel_name.startswith(f"{stem}-") or archive_name != f"{stem}.tar.gz":
        found.append(f"the files are not called {stem}")
    if known.description_content_type != "text/markdown" or not (known.description or "").strip():
        found.append("there is no description in Markdown")
    if not known.summary or not known.requires_python or not known.license_expression:
        found.append("summary, requires-python or license is missing")
    found += [
        f"{name} is not in the wheel" for name in known.license_files or () if f"{folder}/licenses/{name}" not in inside
    ]
    recorded = {row[0]: row[1] for row in csv.reader(inside[f"{folder}/RECORD"].decode().splitlines())}
    for name, content in inside.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        if not name.endswith("/RECORD") and recorded.get(name) != f"sha256={digest}":
            found.append(f"RECORD does not have {name} as it is")
    entries = inside.get(f"{folder}/entry_points.txt", b"").decode()
    for module in re.findall(r"^[\w-]+ = ([\w.]+):", entries, re.MULTILINE):
        path = module.replace(".", "/")
        if f"{path}.py" not in inside and f"{path}/__init__.py" not in inside:
            found.append(f"an entry point names {module}, which is not in the wheel")
    return found


def git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, text=True, capture_output=True, check=True).stdout.strip()


def built(commit: str, epoch: int) -> dict[str, bytes]:
    """Source archive and wheel of a commit, by name."""
    with tempfile.TemporaryDirectory() as name:
        source, out = Path(name) / "source", Path(name) / "out"
        source.mkdir()
        out.mkdir()
        archive = subprocess.run(["git", "archive", commit], cwd=ROOT, capture_output=True, check=True).stdout
        os.umask(0o022)  # modes are part of the bytes
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            tar.extractall(source, filter="data")
        subprocess.run(
            [sys.executable, "-I", "-c", BUILD, str(out)],
            cwd=source,
            env={**os.environ, "SOURCE_DATE_EPOCH": str(epoch)},
            stdout=subprocess.DEVNULL,
            check=True,
        )
        return {
            path.name: repacked(path, epoch) if path.name.endswith(".tar.gz") else path.read_bytes()
            for path in out.iterdir()
        }


def repacked(path: Path, epoch: int) -> bytes:
    """A source archive without what differs from one build to the next: times, owners and order."""
    plain = io.BytesIO()
    with tarfile.open(path) as old, tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as new:
        for member in sorted(old.getmembers(), key=lambda entry: entry.name):
            member.mtime, member.uid, member.gid, member.uname, member.gname = epoch, 0, 0, "", ""
            member.pax_headers = {}
            new.addfile(member, old.extractfile(member) if member.isfile() else None)
    return gzip.compress(plain.getvalue(), mtime=epoch)


def packages(version: str, commit: str) -> dict[str, Any]:
    """What an installation brings with it, by the locks that users install from."""
    found: dict[tuple[str, str], list[str]] = {}
    for lock in locks():
        for name, number in LOCKED.findall(lock.read_text(encoding="utf-8")):
            found.setdefault((name, number), []).append(lock.stem)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, commit)}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "library",
                "bom-ref": "gpuflow",
                "name": "gpuflow",
                "version": version,
                "licenses": [{"license": {"id": "Apache-2.0"}}],
                "properties": [{"name": "gpuflow:commit", "value": commit}],
            }
        },
        "components": [
            {
                "type": "library",
                "bom-ref": f"{name}@{number}",
                "name": name,
                "version": number,
                "purl": f"pkg:pypi/{name}@{number}",
                "properties": [{"name": "gpuflow:lock", "value": each} for each in names],
            }
            for (name, number), names in sorted(found.items())
        ],
    }


def locks() -> list[Path]:
    return sorted((ROOT / "locks").glob("install-*.txt"))


def audited() -> tuple[bool, bytes]:
    """Whether a known vulnerability was found, and what to say. An audit that could not be made is said to be none."""
    lines, vulnerable = [], False
    for lock in locks():
        with tempfile.TemporaryDirectory() as folder:
            answer = Path(folder) / "audit.json"
            words = ["--requirement", str(lock), "--require-hashes", "--disable-pip", "--progress-spinner", "off"]
            words += ["--format", "json", "--output", str(answer), "--timeout", "15"]
            done = subprocess.run(
                [sys.executable, "-I", "-m", "pip_audit", *words], text=True, capture_output=True, check=False
            )
            text = answer.read_text() if answer.exists() else ""
        if not text:
            reason = (done.stderr.strip().splitlines() or ["no reason was given"])[-1]
            reason = re.sub(r"https?://\S+|host='[^']*'", "the service", reason)
            lines.append(f"{lock.stem}: NOT audited: {reason[:200]}")
            continue
        entries = json.loads(text)["dependencies"]
        bad = [
            f"{each['name']} {each['version']}: {known['id']}" for each in entries for known in each.get("vulns", [])
        ]
        skipped = [f"{each['name']} not audited: {each['skip_reason']}" for each in entries if "skip_reason" in each]
        vulnerable |= bool(bad)
        if len(skipped) == len(entries):
            lines.append(f"{lock.stem}: NOT audited: none of its {len(entries)} packages; the first: {skipped[0]}")
            continue
        lines.append(f"{lock.stem}: {len(entries) - len(skipped)} packages audited, {len(bad)} known vulnerabilities")
        lines += [f"  {line}" for line in (*bad, *skipped)]
    return vulnerable, ("\n".join(lines) + "\n").encode()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tag", metavar="vVERSION", help="also tag the commit; nothing is pushed")
    sys.exit(main(parser.parse_args().tag))
