"""How often a task may make another pod: Airflow's own `retries` for everything, or one budget for each cause."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from gpuflow.airflow.ledger import Ledger

LOST_WORKERS = 2
"""Airflow tries kept in reserve for workers that die. They are nobody's failure, so they cost none of the budget."""

_RETRIES = "there is no retry", "the only retry is", "all {} retries are"
_INTERRUPTIONS = (
    "there is no budget for interruptions",
    "the only interruption of the budget is",
    "all {} interruptions of the budget are",
)


@dataclass(frozen=True, slots=True)
class Budgets:
    """What a task may spend, and how many tries Airflow is asked for."""

    tries: int
    """Airflow's own `retries`."""
    failures: int
    interruptions: int
    any: int | None = None
    """Failures and interruptions together, instead of each apart. Then each of them costs an Airflow try."""

    @classmethod
    def of(cls, failures: int | None, interruptions: int | None, retries: int | None) -> Self:
        """The budgets that these arguments of an operator ask for.

        `retries` alone means what it means in Airflow: so many more tries, whatever ended the one before. With
        `failures` it cannot cut the step's own budget short: `default_args` of a DAG may bring fewer.
        """
        if retries is not None and failures is None:
            if interruptions is None:
                return cls(retries, retries, retries, any=retries)
            return cls(retries, retries, interruptions)
        failures = failures or 0
        return cls(max(retries or 0, failures + LOST_WORKERS), failures, interruptions or 0)

    def used_up(self, ledger: Ledger, *, interrupted: bool) -> str | None:
        """The end of a sentence when there is nothing left for another pod."""
        if self.any is not None:
            return _used_up(self.any, _RETRIES) if ledger.ends > self.any else None
        if interrupted:
            if ledger.interruptions > self.interruptions:
                return _used_up(self.interruptions, _INTERRUPTIONS)
        elif ledger.failures > self.failures:
            return _used_up(self.failures, _RETRIES)
        return None

    def counted(self, ledger: Ledger, *, interrupted: bool) -> str:
        """How far it is, for the message of a try that is followed by another."""
        if self.any is not None:
            return f"retry {ledger.ends} of {self.any} follows"
        if interrupted:
            return f"interruption {ledger.interruptions} of {self.interruptions}"
        return f"failure {ledger.failures} of {self.failures} that are retried"

    def spent(self, ledger: Ledger) -> str:
        """What is used so far, as the end of a sentence."""
        if self.any is not None:
            return f": retry {ledger.ends} of {self.any}" if ledger.ends else ""
        counts = []
        if ledger.failures:
            counts.append(f"{ledger.failures} of {self.failures} failures")
        if ledger.interruptions:
            counts.append(f"{ledger.interruptions} of {self.interruptions} interruptions")
        return f" after {' and '.join(counts)}" if counts else ""


def _used_up(number: int, words: tuple[str, str, str]) -> str:
    none, one, many = words
    return none if number == 0 else f"{one if number == 1 else many.format(number)} used up"
