"""The program of the artifacts' kill test: writes a tree that only one attempt can have written, and says of one
whether it is whole. Standard library only.

    python artifact_tree.py write FOLDER SEED ATTEMPT
    python artifact_tree.py check FOLDER VERDICTS
"""

from __future__ import annotations

import hashlib
import os
import random
import sys

FILES = 14


def tree(seed: str, attempt: str) -> dict[str, tuple[str, object]]:
    """Every path of it: files of many sizes, empty ones and folders, links and a program."""
    chance = random.Random(f"{seed} {attempt}")
    found: dict[str, tuple[str, object]] = {"whose": ("file", f"{seed} {attempt}".encode())}
    for number in range(FILES):
        size = chance.choice([0, 1, 900, 40_000, 300_000])
        found[f"d{number % 3}/f{number}"] = ("file", chance.randbytes(size))
    found["large"] = ("file", chance.randbytes(1 << 20) + bytes(1 << 20) + b"end")
    found["none"] = ("folder", None)
    found["to"] = ("link", "d1")
    found["d2/one"] = ("link", "../d0/f0")
    found["run"] = ("program", b"#!/bin/sh\n")
    return found


def write(folder: str, seed: str, attempt: str) -> None:
    for path, (kind, content) in tree(seed, attempt).items():
        place = os.path.join(folder, path)
        os.makedirs(place if kind == "folder" else os.path.dirname(place), exist_ok=True)
        if kind == "link":
            os.symlink(str(content), place)
        elif kind != "folder":
            assert isinstance(content, bytes)
            with open(place, "wb") as file:
                file.write(content)
            os.chmod(place, 0o755 if kind == "program" else 0o644)


def flaw(folder: str) -> str | None:
    """What is missing, mixed, changed or too much; None for a whole tree of one attempt."""
    try:
        with open(os.path.join(folder, "whose"), encoding="ascii") as file:
            seed, attempt = file.read().split()
    except (OSError, ValueError) as refusal:
        return f"nobody's: {refusal}"
    wanted = tree(seed, attempt)
    above = {os.path.dirname(path) for path in wanted} - {""}
    here = set()
    for top, folders, names in os.walk(folder):
        here |= {os.path.relpath(os.path.join(top, name), folder) for name in [*folders, *names]}
    if here != set(wanted) | above:
        return f"other paths: {sorted(here ^ (set(wanted) | above))}"
    for path, (kind, content) in wanted.items():
        place = os.path.join(folder, path)
        if kind == "link":
            if os.readlink(place) != content:
                return f"{path} leads elsewhere"
        elif kind != "folder":
            assert isinstance(content, bytes)
            with open(place, "rb") as file:
                if hashlib.sha256(file.read()).digest() != hashlib.sha256(content).digest():
                    return f"{path} has other bytes than attempt {attempt} wrote"
            if os.stat(place).st_mode & 0o777 != (0o755 if kind == "program" else 0o644):
                return f"{path} has another mode"
    return None


def main() -> None:
    if sys.argv[1] == "write":
        write(*sys.argv[2:5])
        return
    found = flaw(sys.argv[2])
    with open(sys.argv[3], "a", encoding="utf-8") as file:
        file.write(f"{found or 'whole'}\n")


if __name__ == "__main__":
    main()
