"""The termination message: one sentence for people and one line of JSON for engines, in Kubernetes' file."""

from __future__ import annotations

import json
import os
import sys

from gpuflow.runtime.base.outcomes import EXIT_RUNTIME
from gpuflow.runtime.base.units import one_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_MOST = 4000
"""Kubernetes keeps 4096 bytes."""


def write(path: str, sentence: str, outcome: str, code: int, **facts: Any) -> int:
    """Leave the termination message, where there is a file for it: Kubernetes makes one in every container. The exit
    code in it."""
    facts.update(outcome=outcome, exit_code=code)
    write_text(path, compose(f"gpuflow-run: {sentence}", facts))
    return code


def write_text(path: str, text: str) -> None:
    """Leave these words, if they can be left."""
    if not os.path.exists(path):
        return
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(_plain(text))
    except OSError:
        return


def refuse(sentence: str, path: str) -> int:
    """Say why the supervisor cannot work, where people and Kubernetes look; its exit code."""
    print(f"gpuflow-run: {sentence}", file=sys.stderr)
    write_text(path, f"gpuflow-run: {sentence}\n")
    return EXIT_RUNTIME


def compose(sentence: str, facts: dict[str, Any]) -> str:
    """Sentence, newline, JSON; the sentence is cut when both together are too long."""
    sentence = _plain(one_line(sentence.replace("\n", " ")))
    line = _plain(json.dumps({"gpuflow": 1, **facts}, sort_keys=True, ensure_ascii=False))
    room = max(0, _MOST - len(line.encode()))
    return sentence.encode()[:room].decode("utf-8", "ignore") + "\n" + line + "\n"


def _plain(text: str) -> str:
    """Without bytes that are no UTF-8, such as those of a file's name: they are spelled out, also for JSON."""
    return text.encode("utf-8", "backslashreplace").decode()


def parse(message: str | None) -> dict[str, Any] | None:
    """The facts in a termination message of the supervisor's, or None for any other text."""
    for line in reversed((message or "").splitlines()):
        if line.startswith("{"):
            try:
                facts = json.loads(line)
            except ValueError:
                return None
            return facts if isinstance(facts, dict) and facts.get("gpuflow") == 1 else None
    return None
