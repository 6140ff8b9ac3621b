"""Quantities: texts that Kubernetes reads, texts that it refuses, and the usual amounts of resources."""

from __future__ import annotations

from typing import Any

from tests.differential.draw import Draw

SUFFIXES = ("", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
DIGITS = {"P": 5, "Pi": 5, "E": 2, "Ei": 2, "T": 8, "Ti": 8}
"""How many digits may stand before the largest suffixes: gpuflow and Kubernetes print amounts of 1000E and more
differently on purpose."""
ODD = (
    "", "-", "+", ".", "m", "Ki", "e5", "E3", "1E", "1e", "1e+", "1.2.3", "1K", "1ki", "1mi", "1KB", "1Gib", " 1",
    "1 ", "1_000", "inf", "nan", "0x1", "--1", "+-1", "1e1.5", "1m1", "1Em", "１", "1,5", "0.0000000001", "-0", "00.10",
    "9223372036854775807", "9223372036854775808", "-9223372036854775808", "9223372036854775807Ki", "8Ei", "7.9999Ei",
    "0.1Ki", "0.0001Ki", "1.5Ki", "999m", "1000m", "1001m", "1e-9", "1e-10", "1.e3", ".5Gi", "1024Ki", "1023Ki",
)  # fmt: skip

CPU = ("0", "0.0001", "1m", "100m", "0.1", "100e-3", "250m", "0.25", "0.5", "500m", 0.5, "1", 1, "1e0", "1.25", "1500m",
       "2", "4", "16")  # fmt: skip
MEMORY = ("0", "100m", "1k", "1e3", "64Mi", "100Mi", "128974848", "129e6", "128Mi", "500M", "0.5Gi", "512Mi", "1G",
          "1e9", "1Gi", 1073741824, "1.5Gi", "1536Mi", "4Gi", "1Ti")  # fmt: skip
STORAGE = ("0", "1k", "500M", "0.5Gi", "1e9", "1Gi", "2Gi", "10G", "20G")
"""Amounts that pods ask for, from little to much."""
GPUS = ("0", "1", "2", "4", "8", 1, "1000m", "2e0")
BAD_GPUS = ("500m", "1.5", "0.1")
HUGE = ("2Mi", "4Mi", "1Gi")


def text(draw: Draw) -> str:
    """One text, mostly a legal quantity."""
    if draw.chance(0.15):
        return draw.pick(ODD)
    suffix = draw.pick(SUFFIXES)
    whole = str(draw.number(0, 10 ** draw.number(1, DIGITS.get(suffix, 12))))
    fraction = ""
    if draw.chance(0.35):
        fraction = "." + "".join(str(draw.number(0, 9)) for _ in range(draw.number(0, 11)))
    sign = draw.weighted({"": 8, "-": 1, "+": 1})
    if suffix == "" and draw.chance(0.3):
        suffix = f"{draw.pick('eE')}{draw.pick(('', '+', '-'))}{draw.number(0, 6)}"
    return f"{sign}{whole}{fraction}{suffix}"


def case(draw: Draw) -> dict[str, Any]:
    """One quantity to read, or two to add, subtract and compare."""
    first = text(draw)
    if draw.chance(0.3):
        return {"a": first}
    return {"a": first, "b": text(draw)}
