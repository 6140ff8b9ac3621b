"""The checker's answer from its front door, and how it differs from what was seen."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from proofs.whole_documents.scenes import KINDS

Object = dict[str, Any]
SITE = Path(__file__).with_name("site.yaml")
GOOD = ("came", "waited")
ORDER = ("always", "may-queue", "unknown", "never")
NOT_JUDGED = frozenset({"GF703"})
"""Errors that say nothing of the server: there is nothing to check, or a kind is not read."""


def checked(folder: str, documents: list[Object], namespace: str) -> Object:
    """What `gpuflow check` says of one file; several that start pods are checked together."""
    from gpuflow.cli.main import main as gpuflow

    file = Path(folder).with_suffix(".yaml")
    file.write_text(yaml.safe_dump_all(documents))
    count = sum(item.get("kind") in KINDS for item in documents)
    place = ["--cluster", folder, "--namespace", namespace, "--site", str(SITE)]
    words = ["check", str(file), *place, "--format", "json"]
    out, err = io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = gpuflow([*words, *(["--together"] if count > 1 else [])])
    except SystemExit as end:
        code = int(end.code or 0)
    except Exception as error:
        return {"verdict": "traceback", "codes": [], "words": [repr(error)]}
    file.unlink()
    said = json.loads(out.getvalue() or "null")
    reports = [row.get("together", row) for row in (said if isinstance(said, list) else [said] if said else [])]
    findings = [each for row in reports for each in row.get("findings", ())]
    heavy = [each for each in findings if each["severity"] != "note"]
    words = [f"{each['code']}: {each['message']}" for each in heavy or findings]
    codes = {each["code"] for each in heavy}
    if code == 2:
        words = [
            line.partition(" ")[2] for line in err.getvalue().splitlines() if " GF" in line
        ] or err.getvalue().splitlines()
        codes = {line[:5] for line in words}
    verdicts = [row["verdict"] for row in reports if "verdict" in row]
    verdict = max(verdicts, key=ORDER.index) if verdicts else "error" if code == 2 else f"exit {code}"
    return {"verdict": verdict, "codes": sorted(codes), "words": list(dict.fromkeys(words))[:6]}


def checked_again(row: Object) -> Object:
    """The answer of today to a document and its snapshot."""
    folder = tempfile.mkdtemp(prefix="whole-")
    for name, text in row["snapshot"].items():
        (Path(folder) / name).write_text(text)
    found = checked(folder, row["documents"], row["namespace"])
    shutil.rmtree(folder)
    return found


def fault(row: Mapping[str, Any]) -> str:
    """How the answer differs from what was seen; empty when it does not."""
    verdict, outcome = row["checker"]["verdict"], row["outcome"]
    if verdict == "traceback" or str(verdict).startswith("exit"):
        return "no answer"
    if verdict == "always" and outcome not in ("came", "asleep"):
        return "wrong always"
    if verdict == "error" and outcome in GOOD and NOT_JUDGED & {*row["checker"]["codes"]}:
        return "not judged, and it came"
    if verdict in ("never", "error") and outcome in GOOD:
        return "wrong never"
    if verdict in ("may-queue", "unknown") and outcome in ("refused", "failed", "stuck"):
        return f"{verdict}, and it {'was ' if outcome == 'refused' else ''}{outcome}"
    return f"{verdict}, and it came" if verdict in ("may-queue", "unknown") and outcome == "came" else ""


def cause(row: Mapping[str, Any]) -> str:
    """What the server said, or else the checker, without the names of the scene."""
    words = row["words"] or row["checker"]["words"] or ["nothing was said"]
    plain = str(words[0]).replace(row["namespace"], "NS")
    return " ".join("N" if any(c.isdigit() for c in word) else word for word in plain.split())[:150]
