"""How a site, or an operator of Airflow, says each kind of gang: its kind, and its scheduler where it has one."""

from __future__ import annotations


def said(word: str) -> dict[str, str]:
    """The fields of `gangs` for a word of `gang_kinds`."""
    kind, _, scheduler = word.partition("+")
    return {"kind": kind, **({"scheduler": scheduler} if scheduler else {})}
