"""Where this gpuflow was installed from: the Git address and commit that somebody else can install it from too."""

from __future__ import annotations

import json
import re
import subprocess
from importlib import metadata
from typing import NamedTuple
from urllib.parse import unquote, urlsplit, urlunsplit


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
        return _sound(url, str(version.get("commit_id", "")))
    if "dir_info" in recorded and url.startswith("file://"):
        folder = unquote(urlsplit(url).path)
        return _sound(_git(folder, "remote", "get-url", "origin"), _git(folder, "rev-parse", "HEAD"))
    return None


def _git(folder: str, *words: str) -> str:
    command = ["git", "--no-pager", "-c", "safe.bareRepository=explicit", "-C", folder, *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    except OSError:
        return ""
    return "" if done.returncode else done.stdout.strip()


def _sound(url: str, commit: str) -> Origin | None:
    """Only what Git can clone elsewhere, in characters that need no quotes, and never with somebody's password."""
    if not re.fullmatch("[0-9a-f]{40}([0-9a-f]{24})?", commit):
        return None
    if re.fullmatch(r"[\w.-]+@[\w.-]+:[\w./~+-]+", url):  # git@host:team/gpuflow.git
        return Origin(url, commit)
    parts = urlsplit(url)
    if parts.scheme in ("http", "https"):
        url = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
    known = re.fullmatch(r"(https?|ssh|git|file)://[\w.@:/~%+-]+", url)
    return Origin(url, commit) if known else None
