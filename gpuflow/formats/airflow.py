"""An Airflow DAG as a program inside Airflow's own Python records it, and as the readers here take it.

That Python may be an old one without gpuflow: the program (`gpuflow.readers.python.inside_engine`) loads this file by
its path. So it is standard library only, Python 3.8 or newer, and imports nothing from the rest.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

BY_ITEM, BY_RUN = "item", "run"
"""What decides whether copies of a task run: a condition on the item of each, or one on values of the run."""


@dataclass
class Fault:
    """Why a file could not be loaded."""

    message: str
    line: int | None = None
    missing: str | None = None
    """The module that it could not import."""
    variable: str | None = None
    """The Variable that has no value."""


@dataclass
class Level:
    """A list whose items something is run for."""

    list: str
    """The task that lists them."""
    number: int | None
    """Of one item of the list around it; None: only known in the run."""
    because: str | None


@dataclass
class Copies:
    """How many copies a mapped task or group has."""

    number: int | None
    """None: only known in the run."""
    conditional: str | None = None
    because: str | None = None
    """Why only the run knows."""
    levels: list[Level] = field(default_factory=list)
    """Of a list that gpuflow's own task makes: the lists around it and itself, the outermost first."""


@dataclass
class Made:
    """Things that some copies of a task make."""

    copies: int
    """How many copies make just these."""
    objects: list[dict[str, Any]] = field(default_factory=list)
    """Manifests without names and namespaces."""


@dataclass
class PodLimit:
    """`at_most` of gpuflow's own operator."""

    most: int
    group: str
    per: list[str] = field(default_factory=list)
    items: list[str] = field(default_factory=list)


@dataclass
class Claim:
    """A volume that gpuflow's own operator claims for a run."""

    name: str
    size: str
    access: str
    storage_class: str | None


@dataclass
class Task:
    """One task. What is not said of it is left out of the record."""

    task_id: str
    operator: str
    trigger_rule: str
    pool: str
    upstream: list[str] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)
    """The task groups around it, the outermost first."""
    retries: int = 0
    is_setup: bool = False
    is_teardown: bool = False
    at_once: int | None = None
    """How many copies of it are active in a run at most, and with each its pods."""
    is_stock: bool = False
    """Whether Airflow's own operator makes its pod, which fails when the API server refuses that."""
    branches: bool = False
    """Whether it decides which tasks after it run."""
    executor_config: Any = None
    starts: str | None = None
    """The DAG of which it starts a run."""
    makes: str | None = None
    """`pods`, `objects`, or `unseen`, which only the run could show."""
    because: str | None = None
    """Why what it makes is not seen."""
    claim: Claim | None = None
    made: list[Made] = field(default_factory=list)
    deferrable: bool = False
    has_outputs: bool = False
    waits: bool = True
    """Whether it ends when its pods do, and not before."""
    keeps: str | None = None
    """What becomes of its pods: `keep_pod`, `delete_pod`, …"""
    namespace: str | None = None
    copies: Copies | None = None
    when: str | None = None
    only_after_failure: bool = False
    limits: list[PodLimit] = field(default_factory=list)
    tries: int | None = None
    """Of gpuflow's own operator: how many pods at most, one after another."""
    line: tuple[int, int] | None = None
    """Line and column of it in the file. The program does not know them; whoever asked it does."""


@dataclass
class Dag:
    """One DAG."""

    dag_id: str
    max_active_tasks: int | None
    max_active_runs: int | None
    schedule: str | None
    """In words; None: no run starts by itself."""
    catchup: bool
    timeout: int | None
    """In seconds."""
    params: dict[str, Any]
    groups: dict[str, Copies]
    """The mapped task groups."""
    tasks: list[Task] = field(default_factory=list)
    line: tuple[int, int] = (1, 1)
    old: list[tuple[str, str, int, int, str | None]] = field(default_factory=list)
    """What the text of the file asks for in words that no operator understands any more: code, message, line, column
    and hint."""


@dataclass
class Answer:
    """All that the program says of a file: its DAGs or the documents of its workflows, or why there are none."""

    dags: list[Dag] = field(default_factory=list)
    documents: list[dict[str, Any]] = field(default_factory=list)
    fault: Fault | None = None


def as_json(record: Any) -> dict[str, Any]:
    """A record as `json.dumps` takes it; what is as it is by default is left out."""
    given = {each.name: getattr(record, each.name) for each in fields(record)}
    usual = {each.name: each.default for each in fields(record)}
    return {name: value for name, value in given.items() if value != usual[name] and value != []}
