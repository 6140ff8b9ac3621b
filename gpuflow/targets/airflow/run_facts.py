"""The facts of a run in Airflow's words: as calls of `gpuflow.airflow`, and for a stock operator as Jinja."""

from __future__ import annotations

import json

from gpuflow.date_format import MOMENT, pieces
from gpuflow.spec.pipeline import Schedule
from gpuflow.spec.text import RunRef
from gpuflow.targets.airflow.python import Call

ZONE = "ZoneInfo"
"""The one name that a template needs and Airflow does not have."""
SCHEDULED_TIME = (
    'dag_run.run_after if dag_run.run_type in ("scheduled", "backfill") else dag_run.logical_date or dag_run.run_after'
)
"""As `gpuflow.airflow.run_facts.scheduled_time`: the logical date of a data interval is its start."""


def run_fact(ref: RunRef, schedule: Schedule | None) -> Call:
    """The call that gives a fact of the run. The time zone of a date is the schedule's unless the reference has one."""
    if not ref.is_date:
        return Call({"id": "run_id", "name": "dag_run_id", "attempt": "attempt"}[ref.field])
    zone = ref.timezone or (schedule.timezone if schedule is not None else "UTC")
    if ref.field != "interval_start":
        # The end of the interval is the logical date.
        shown = {} if zone == "UTC" else {"timezone": zone}
        return Call("logical_date", () if ref.layout == MOMENT else (ref.layout,), shown)
    assert schedule is not None  # refused before
    named = {} if ref.layout == MOMENT else {"format": ref.layout}
    named |= {} if zone == schedule.timezone else {"timezone": zone}
    return Call("interval_start", (schedule.cron, schedule.timezone), named)


def jinja_fact(call: Call) -> str | None:
    """The expression of a fact of the run in a template of Airflow; None: the call is none."""
    if call.name == "dag_run_id":
        return "dag_run.run_id"
    if call.name == "attempt":
        return "ti.try_number | string"  # the stock operator makes one pod in each try
    if call.name != "logical_date":
        return None
    zone = json.dumps(call.named.get("timezone", "UTC"))
    moment = f"({SCHEDULED_TIME}).astimezone({ZONE}({zone}))"
    return " ~ ".join(_jinja_parts(moment, call.args[0] if call.args else MOMENT))


def _jinja_parts(moment: str, form: str) -> list[str]:
    if form == MOMENT:
        return [f'{moment}.isoformat(timespec="seconds")']
    parts, text = [], ""
    for piece in [*pieces(form), "%:z"]:
        if piece != "%:z":
            text += piece
            continue
        if text:
            parts.append(f"{moment}.strftime({json.dumps(text, ensure_ascii=False)})")
        # Python's strftime knows this one from 3.12 on.
        parts.append(f"{moment}.isoformat()[-6:]")
        text = ""
    return parts[:-1]
