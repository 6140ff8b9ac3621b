"""What the benches share: `--smoke`, and processor seconds."""

from __future__ import annotations

import argparse
import gc
from collections.abc import Callable
from time import process_time


def arguments(description: str | None) -> argparse.ArgumentParser:
    """The parser of a bench. With `--smoke` it runs the same code in seconds; tests do, and figures mean nothing."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="the smallest sizes: does it still run?")
    return parser


def seconds(work: Callable[[], object], clock: Callable[[], float] = process_time) -> float:
    """What a piece of work takes, by the processor's clock unless told otherwise. What the work before it left is
    collected first, or this one would pay for it."""
    gc.collect()
    start = clock()
    work()
    return clock() - start
