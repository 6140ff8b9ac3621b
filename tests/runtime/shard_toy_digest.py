"""What the toy of `shard_toy` ends with when nobody disturbs it."""

from __future__ import annotations

import hashlib


def after(mine: str, everyone: list[str]) -> str:
    return hashlib.sha256((mine + "".join(everyone)).encode()).hexdigest()


def undisturbed(size: int, steps: int) -> str:
    mine = [f"start {rank}" for rank in range(size)]
    for _ in range(steps):
        mine = [after(each, mine) for each in mine]
    return after("", mine)
