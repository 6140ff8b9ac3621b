"""How often to save: Young's and Daly's intervals, learned from what is measured, and whether a last save fits.

C is the time a save stalls the program, M the mean time between interruptions. Too often wastes C, too rarely wastes
the work since the last one; the best interval is near sqrt(2 C M) (Young 1974), and Daly's 2006 series for it holds
for long saves too.
"""

from __future__ import annotations

import math

SHORTEST = 5.0
"""Never ask for a save more often than this, however cheap it is."""


def daly_interval(save: float, between: float) -> float:
    """Daly's interval: Young's with two more terms, less the save itself; M when a save takes longer than 2 M."""
    if save >= 2 * between:
        return between
    ratio = save / (2 * between)
    return math.sqrt(2 * save * between) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - save


def mean_time_between(prior: float, seen_seconds: float, interruptions: int) -> float:
    """The site's figure weighed as one observation against what this run has lived through."""
    return (prior + seen_seconds) / (1 + interruptions)


def blend(old: float | None, new: float) -> float:
    """A measured time, smoothed: a slow save today counts for a third."""
    return new if old is None else old + (new - old) / 3


def choose_interval(every: float | str, save: float | None, between: float) -> float:
    """The interval in seconds: as given, or Daly's from the measured save; a minute until one was measured."""
    if isinstance(every, float):
        return every
    if save is None:
        return max(SHORTEST, min(60.0, between / 10))
    return max(SHORTEST, daly_interval(max(save, 0.01), between))


def upload_reserve(grace: float, upload: float | None) -> float:
    """How much of the grace is kept for the upload after the program has saved: what it took, never over half.

    Nothing is kept for an upload that would take more than half: it may not fit either way, and the program can use
    the time. What is kept is decided before the program starts, since the program is told how much is left to it.
    """
    wanted = 0.1 * grace if upload is None else 1.5 * upload + 1.0
    return 0.0 if wanted > grace / 2 else max(wanted, min(2.0, grace / 4))
