"""Build what is released: wheel and source archive, a list of packages, an audit, checksums. `make release` runs this.

Everything comes from the commit, not from the working tree, and is built twice: when the two differ nothing is
released. The list is CycloneDX JSON, made from the locks. Nothing is published.
"""

from __future__ import annotations

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
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
LOCKED = re.compile(r"^([a-z0-9.-]+)==([^\s;\\]+)", re.MULTILINE)
BUILD = "import sys, setuptools.build_meta as b; out = sys.argv[1]; b.build_sdist(out); b.build_wheel(out)"


def main() -> int:
    commit = git("rev-parse", "HEAD")
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
    version = next(name for name in first if name.endswith(".tar.gz")).removesuffix(".tar.gz").partition("-")[2]
    first[f"gpuflow-{version}.cdx.json"] = (json.dumps(packages(version, commit), indent=1) + "\n").encode()
    vulnerable, first["audit.txt"] = audited()
    shutil.rmtree(DIST, ignore_errors=True)
    DIST.mkdir()
    sums = [f"{hashlib.sha256(content).hexdigest()}  {name}" for name, content in sorted(first.items())]
    for name, content in {**first, "SHA256SUMS": ("\n".join(sums) + "\n").encode()}.items():
        (DIST / name).write_bytes(content)
    print(f"built twice from {commit}, the same bytes:", *sums, sep="\n  ")
    print(first["audit.txt"].decode().strip())
    return 1 if vulnerable else 0


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
    sys.exit(main())
