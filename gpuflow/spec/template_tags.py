"""Text that looks like a template of Airflow, Argo or KFP, and what its tags mean there.

gpuflow expands no text: what stands in a command reaches the program. Whoever comes from an engine that does expand
it expects something else, so such text is questioned. Text for other programs is not: Go templates (`{{.State}}`,
`{{range .Items}}`) are what docker, kubectl and helm take as arguments.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from gpuflow.core.date_format import DATE, TIMESTAMP, pieces

_MACRO = r"\[\[(?:RunUUID|RunUuid|Index|(?:Scheduled|Current)Time(?:\.[^\]\n]*)?)\]\]"
_STATEMENT = r"\{%[-+]?\s*(?:if|for|set|macro|call|filter|block|extends|include|import|from|with|raw)\b.*?%\}"
_TAG = re.compile(rf"\{{\{{(?!\{{)(?=[^}}]*\w)(?:(?!\{{\{{|\}}\}}).)*\}}\}}|{_STATEMENT}|{_MACRO}", re.DOTALL)
_GO = re.compile(
    r"-?\s*(?:\.|\(|\$(?:\.[A-Z]|\w)|/\*|(?:end|else)\s*-?$|(?:range|if|with|else|define|block|template|include)\s"
    r"|(?:printf|print|println|json|len|index|join|split|upper|lower|title|pad|table|html|js|urlquery|toYaml|quote|"
    r"eq|ne|lt|le|gt|ge|and|or|not)\s+[.$(\"'])"
)
"""How a tag of a Go template begins; `{{$.inputs…}}` is KFP's, `{{$.Values…}}` is Helm's."""


class Tag(NamedTuple):
    """One tag in a text."""

    text: str
    start: int
    end: int


class Meaning(NamedTuple):
    """What a tag stands for in its engine, as a kind of reference (param, output, item, run) and its name."""

    kind: str
    name: str


def tags_in(text: str) -> list[Tag]:
    """The tags in a text that some engine would have filled in; none where they are for another program."""
    if "{{" not in text and "{%" not in text and "[[" not in text:
        return []
    found = [Tag(match[0], match.start(), match.end()) for match in _TAG.finditer(text)]
    return [] if all(tag.text.startswith("{{") and _GO.match(tag.text[2:-2]) for tag in found) else found


def looks_like_template(text: str) -> bool:
    """Whether an engine would have filled in some of a text."""
    return bool(tags_in(text))


_NAME = r"([A-Za-z][\w-]*)"
_STEP = r"([A-Za-z0-9][\w-]*)"
_KEY = rf"""(?:\.{_NAME}|\[\s*['"]{_NAME}['"]\s*\])"""
_RUN = {
    "ds": "date",
    "ds_nodash": 'date, format: "%Y%m%d"',
    "ts": "logical_date",
    "ts_nodash": 'logical_date, format: "%Y%m%dT%H%M%S"',
    "logical_date": "logical_date",
    "execution_date": "logical_date",
    "data_interval_start": "interval_start",
    "data_interval_end": "interval_end",
    "run_id": "id",
    "dag_run.run_id": "id",
    "dag_run.logical_date": "logical_date",
    "ti.try_number": "attempt",
    "task_instance.try_number": "attempt",
    "workflow.uid": "id",
    "workflow.name": "name",
    "workflow.scheduledTime": "logical_date",
    "retries": "attempt",
    "$.pipeline_job_uuid": "id",
    "$.pipeline_job_name": "name",
    "$.pipeline_job_resource_name": "name",
    "$.pipeline_job_schedule_time_utc": "logical_date",
    "$.pipeline_job_create_time_utc": "logical_date",
}
"""What says the same about the run, by the tag of each engine."""
_FORMATTED_DATE = re.compile(
    r"(?:dag_run\.)?(logical_date|execution_date|data_interval_start|data_interval_end)\s*"
    r"(?:\|\s*(ds|ds_nodash|ts|ts_nodash)|\.strftime\(\s*(?:'([^'\"\\]*)'|\"([^'\"\\]*)\")\s*\))"
)
"""A date of Airflow that a filter or strftime writes."""
_FILTERS = {"ds": DATE, "ds_nodash": "%Y%m%d", "ts": TIMESTAMP, "ts_nodash": "%Y%m%dT%H%M%S"}
_REFERENCE_PATTERNS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("param", re.compile(rf"(?:params|dag_run\.conf){_KEY}|dag_run\.conf\.get\(\s*['\"]{_NAME}['\"].*\)")),
    ("param", re.compile(rf"(?:workflow|inputs)\.parameters\.{_NAME}|\$\.inputs\.parameters{_KEY}")),
    ("output", re.compile(rf"(?:tasks|steps)\.{_STEP}\.outputs\.(?:parameters|artifacts)\.{_NAME}(?:\.path)?")),
    ("output", re.compile(rf"(?:tasks|steps)\.{_STEP}\.outputs\.(result)")),
    ("item", re.compile(rf"item(?:\.{_NAME})?")),
)
_XCOM = re.compile(r"(?:ti|task_instance)\.xcom_pull\((.*)\)", re.DOTALL)
_ENGINES = re.compile(
    r"(?:ds|ts|run_id|logical_date|execution_date|prev_|next_|data_interval_|dag_run|dag\.|task\.|ti\.|task_instance|"
    r"params[.\[]|var\.|conn\.|macros\.|outlet_events|triggering_|workflow\.|inputs\.|outputs\.|tasks\.|steps\.|item\b|"
    r"pod\.name|retries|lastRetry|cronworkflow\.|=|\$\.|channel:|pipelineparam:)"
)


def is_engines(tag: str) -> bool:
    """Whether a tag is one that Airflow, Argo or KFP fills in, and not one of somebody's own templates."""
    return tag.startswith("[[") or (tag.startswith("{{") and bool(_ENGINES.match(tag[2:-2].strip())))


def meaning_of_tag(tag: str) -> Meaning | None:
    """What a tag stands for in its engine; None when gpuflow has no word for it."""
    if tag.startswith("[["):
        word = tag[2:-2].split(".")[0]
        name = "id" if word.lower() == "runuuid" else "logical_date" if word == "ScheduledTime" else None
        return None if name is None else Meaning("run", name)
    if not tag.startswith("{{"):
        return None
    inside = tag[2:-2].strip()
    if inside in _RUN:
        return Meaning("run", _RUN[inside])
    written = _FORMATTED_DATE.fullmatch(inside)
    if written is not None:
        return _date(*written.groups())
    for kind, pattern in _REFERENCE_PATTERNS:
        match = pattern.fullmatch(inside)
        if match:
            return Meaning(kind, ".".join(word for word in match.groups() if word))
    pulled = _XCOM.fullmatch(inside)
    return None if pulled is None else _xcom_output(pulled[1])


def _date(name: str, filtered: str | None, *formats: str | None) -> Meaning | None:
    """A date in a format; None when the format is not one that every engine has."""
    form = _FILTERS[filtered] if filtered else next(each for each in formats if each is not None)
    try:
        pieces(form)
    except ValueError:
        return None
    return Meaning("run", _RUN[name] if form == TIMESTAMP else f'{_RUN[name]}, format: "{form}"')


def _xcom_output(arguments: str) -> Meaning | None:
    """`xcom_pull(task_ids="a", key="x")`: the output of a step, where both are written out."""
    named = dict(re.findall(r"(?:(\w+)\s*=\s*)?\[?\s*['\"]([^'\"]+)['\"]", arguments))
    step = named.get("task_ids") or named.get("")
    return Meaning("output", f"{step}.{named.get('key', 'return_value')}") if step else None
