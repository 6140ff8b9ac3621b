"""`gpuflow init [DIR] [--engine ENGINE]`.

The CI snippet installs gpuflow from the Git address and commit that this gpuflow was installed from.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import subprocess
import tempfile
from dataclasses import replace
from importlib import metadata, resources
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit, urlunsplit

from gpuflow.cli.output import repository_of, shown_source, write_files
from gpuflow.cli.terminal import print_text, show_findings
from gpuflow.core.errors import EnvironmentFailure, Finding, Where, fail
from gpuflow.core.printable import line
from gpuflow.engines import DEFAULT_ENGINE, engine_choices
from gpuflow.site import Site
from gpuflow.spec.loading import load
from gpuflow.targets import load_target
from gpuflow.targets.target import Request, Target, compile_with


class Origin(NamedTuple):
    """A Git address, and a full commit of it."""

    url: str
    commit: str


def origin() -> Origin | None:
    """What pip wrote down when it installed gpuflow from Git, or from a clone; None when it did neither."""
    try:
        recorded = json.loads(metadata.distribution("gpuflow").read_text("direct_url.json") or "null")
    except (metadata.PackageNotFoundError, ValueError):
        return None
    if not isinstance(recorded, dict):
        return None
    url, version = str(recorded.get("url", "")), recorded.get("vcs_info") or {}
    if version.get("vcs") == "git":
        return _safe_origin(url, str(version.get("commit_id", "")))
    if "dir_info" in recorded and url.startswith("file://"):
        folder = unquote(urlsplit(url).path)
        return _safe_origin(_git(folder, "remote", "get-url", "origin"), _git(folder, "rev-parse", "HEAD"))
    return None


def _git(folder: str, *words: str) -> str:
    command = ["git", "--no-pager", "-c", "safe.bareRepository=explicit", "-C", folder, *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    except OSError:
        return ""
    return "" if done.returncode else done.stdout.strip()


def _safe_origin(url: str, commit: str) -> Origin | None:
    """Only what Git can clone elsewhere, in characters that need no quotes, and never with somebody's password."""
    if not re.fullmatch("[0-9a-f]{40}([0-9a-f]{24})?", commit):
        return None
    if re.fullmatch(r"[\w.-]+@[\w.-]+:[\w./~+-]+", url, re.ASCII):  # git@host:team/gpuflow.git
        return Origin(url, commit)
    if not re.fullmatch(r"(https?|ssh|git|file)://[\w.@:/~%+-]+", url, re.ASCII):
        return None
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    named = "" if parts.scheme in ("http", "https") else user.partition(":")[0] + at  # ssh needs its user
    return Origin(urlunsplit(parts._replace(netloc=named + host)), commit)


EXAMPLE = """gpuflow init my-pipeline --engine airflow
cd my-pipeline && gpuflow run pipeline.yaml --pretend-gpus     # here, also without the GPU that it asks for
gpuflow check pipeline.yaml --site site.yaml --cluster cluster/"""
FILES = {
    "pipeline.yaml": "pipeline.yaml",
    "site.yaml": "site.yaml",
    "cluster.yaml": "cluster/quota.yaml",
    "ci.yaml": ".github/workflows/gpuflow.yaml",
}
"""Templates that come with gpuflow, and where they go."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", nargs="?", default=".", metavar="DIR", help="where to write; default: this folder")
    help = f"for which engine to compile and to write the CI; default: {DEFAULT_ENGINE}"
    parser.add_argument("--engine", choices=engine_choices(), help=help)
    parser.add_argument("--force", action="store_true", help="overwrite existing files")


def run(args: argparse.Namespace) -> int:
    root, target, source = Path(args.folder), load_target(args.engine or DEFAULT_ENGINE), origin()
    templates = resources.files("gpuflow") / "templates"
    files = {root / place: (templates / name).read_text(encoding="utf-8") for name, place in FILES.items()}
    ci, own_site = root / FILES["ci.yaml"], root / FILES["site.yaml"]
    files[ci] = _ci(files[ci], target, source)
    more = templates / f"site-{target.name}.yaml"  # what the engine needs there besides
    if more.is_file():
        files[own_site] += more.read_text(encoding="utf-8")
    compiled, missing = _compile_files(files, root, target)
    files |= compiled
    present = [str(path) for path in files if path.exists() or path.is_symlink()]
    if present and not args.force:
        text = f"{', '.join(present)} already exist"
        raise fail("GF907", text, where=Where(str(root)), hint="choose another folder, or --force")
    write_files(files, folder=root)
    for path in files:
        print_text(f"wrote {line(str(path))}\n")
    if args.engine is None:
        others = " or ".join(f"--engine {name}" for name in engine_choices()[1:])
        print_text(f"for {target.facts.title}, since no engine is named; {others} writes for another\n")
    show_findings(missing)
    where = "" if args.folder == "." else f"cd {shlex.quote(line(args.folder))} && "
    print_text(f"next: {where}gpuflow run pipeline.yaml --pretend-gpus\n")
    print_text(f"then: gpuflow check pipeline.yaml --site site.yaml --cluster cluster/ --engine {target.name}\n")
    print_text(f"then: gpuflow compile pipeline.yaml --site site.yaml --target {target.name} -o {target.folder}\n")
    print_text(f"run:  {target.first_run}\n")
    print_text(f"last: commit all of it; {line(str(ci))} checks it in every pull request\n")
    _print_ci_obstacles(root, source)
    return 0


def _ci(text: str, target: Target, source: Origin | None) -> str:
    url, commit = source or ("", "")
    for word, value in {"ENGINE": target.name, "FOLDER": target.folder, "URL": url, "COMMIT": commit}.items():
        text = text.replace(f"@{word}@", value)
    return text


def _compile_files(files: dict[Path, str], root: Path, target: Target) -> tuple[dict[Path, str], tuple[Finding, ...]]:
    """What the pipeline compiles to, so that the CI finds it fresh; or why it cannot be compiled here."""
    output = root / target.folder
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_files({folder / path.relative_to(root): text for path, text in files.items()}, folder=folder)
        pipeline, site = load(folder / "pipeline.yaml"), Site.load(str(folder / "site.yaml"))
    request = Request(pipeline, site, site.namespace, shown_source(str(root / "pipeline.yaml"), output))
    try:
        artifacts = compile_with(target, request, allow_lossy=False).artifacts
    except EnvironmentFailure as refusal:
        text = f"{refusal.findings[0].message}: {output}/ is not written, and the CI is red until you compile"
        return {}, (replace(refusal.findings[0], message=text, where=Where("gpuflow init"), severity="warning"),)
    return {output / artifact.name: artifact.text for artifact in artifacts}, ()


def _print_ci_obstacles(root: Path, source: Origin | None) -> None:
    """Print what would keep the CI from working, if anything."""
    if (repository := repository_of(root)) is not None and repository != root.resolve():
        print_text(
            f"  GitHub reads workflows at the top of a repository only: move it to {line(str(repository))}/.github/\n"
        )
    if source is None:
        print_text("  it checks nothing yet: set GPUFLOW_URL and GPUFLOW_COMMIT in it to your copy of gpuflow\n")
    elif source.url.startswith("file:"):
        print_text(f"  it installs gpuflow from {source.url}, which only this machine has: set GPUFLOW_URL in it\n")
