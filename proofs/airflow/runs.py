"""One run of a DAG: its log, and what Airflow's database says of it."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cluster.waiting import until
from tests.targets.airflow.forking import Running

LONGEST = 3600
"""Seconds after which a run is not slow but wrong."""
LAST_RUN = "(SELECT run_id FROM dag_run WHERE dag_id = ? ORDER BY id DESC LIMIT 1)"


@dataclass(frozen=True)
class Run:
    """A run to its end, in the process that plays it."""

    dag: str
    log: Path
    playing: Running
    database: Path

    def ended(self) -> str:
        """Its log, when it is over."""
        until(f"{self.dag} to end", self.is_over, timeout=LONGEST, otherwise=lambda: self.text[-3000:])
        return self.text

    def is_over(self) -> bool:
        return self.playing.poll() is not None

    @property
    def text(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    @property
    def state(self) -> str:
        rows = self._read("SELECT state FROM dag_run WHERE dag_id = ? ORDER BY id DESC LIMIT 1", self.dag)
        return str(rows[0][0]) if rows else "never began"

    def said(self, words: str) -> bool:
        return words in self.text

    def states(self) -> dict[str, str]:
        """The state of each task; of a mapped one with its index."""
        return {_name(task, index): str(state) for task, index, state, _ in self._tasks()}

    def tries(self, task: str) -> int:
        """How many tries Airflow counts for a task."""
        return max((int(number) for name, _, _, number in self._tasks() if name == task), default=0)

    def _tasks(self) -> list[tuple[Any, ...]]:
        words = (
            f"SELECT task_id, map_index, state, try_number FROM task_instance WHERE dag_id = ? AND run_id = {LAST_RUN}"
        )
        return self._read(words, self.dag, self.dag)

    def xcoms(self, task: str) -> dict[str, Any]:
        """What a task handed over, by key; of a mapped one by key and index."""
        words = f"SELECT key, map_index, value FROM xcom WHERE dag_id = ? AND run_id = {LAST_RUN} AND task_id = ?"
        return {_name(key, index): _value(value) for key, index, value in self._read(words, self.dag, self.dag, task)}

    def assets(self) -> list[str]:
        """The assets that its tasks have updated."""
        words = (
            "SELECT asset.uri FROM asset_event JOIN asset ON asset.id = asset_event.asset_id "
            f"WHERE source_dag_id = ? AND source_run_id = {LAST_RUN}"
        )
        return [str(uri) for (uri,) in self._read(words, self.dag, self.dag)]

    def _read(self, words: str, *values: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(f"file:{self.database}?mode=ro", uri=True, timeout=60)) as database:
            return database.execute(words, values).fetchall()


def _value(kept: Any) -> Any:
    """An XCom as SQLite gives it: numbers are numbers there, everything else is JSON."""
    return json.loads(kept) if isinstance(kept, str | bytes) else kept


def _name(text: str, index: int) -> str:
    return text if index < 0 else f"{text}[{index}]"
