"""The same DAG without gpuflow: stock operators and Jinja, for an Airflow where nothing can be installed.

What the stock operators cannot do is refused by name (`STANDALONE_CANNOT`); the rest is rewritten task by task.

`--airflow 2.10` writes the file for an older Airflow. gpuflow.airflow itself needs Airflow 3.2; stock operators are in
older Airflows too. What differs is where names are imported from, how delays grow, what a DAG must say, and how its
runs are named.

For Airflow 2 a pod is rendered once, whatever the worker does. `airflow dags test` and `dag.test()` of Airflow 2 run a
deferred task in one process and render it again when it goes on. What `literal` kept is plain text by then, so braces
of the step's own would be read as a template, and the task would fail after its pod was made. A file whose steps have
such text gets the stock operator with one method more.
"""

from __future__ import annotations

import ast
import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from importlib import resources
from typing import Any

from gpuflow.core.errors import Finding, Where
from gpuflow.kubernetes.expansion import escape
from gpuflow.plan import Plan
from gpuflow.spec.engine_options.airflow import AirflowTask
from gpuflow.spec.params import text_of
from gpuflow.spec.rules.step_rules import XCOM_RETURN_KEY
from gpuflow.targets.airflow.dag import Dag
from gpuflow.targets.airflow.engine_options import has_assets
from gpuflow.targets.airflow.facts import AirflowOptions
from gpuflow.targets.airflow.python_source import HOMES, Call, Method, Name, names_in, walk, with_parts
from gpuflow.targets.airflow.references import SCHEDULED_TIME, ZONE, jinja_fact
from gpuflow.targets.capabilities import refusal
from gpuflow.targets.target import Request

QUEUE_SECONDS = 7 * 86400
"""How long a pod may wait for a node: the stock operator's two minutes would fail every queued step."""
RUN_NAME = "run_name"
KEPT_ARGUMENTS = ("task_id", "doc", "namespace", "trigger_rule", "retry_delay", "retry_exponential_backoff",
           "max_retry_delay", "max_active_tis_per_dagrun", *AirflowTask.model_fields)  # fmt: skip


def standalone(dag: Dag) -> Dag:
    """The DAG with stock operators only."""
    defaults = dag.settings.get("default_args", {})
    tasks = [replace(made, call=_stock_call(made.call, defaults)) for made in dag.tasks]
    used = names_in([made.call for made in dag.tasks])
    macros = [name for name, call in ((RUN_NAME, "run_id"), (ZONE, "logical_date")) if call in used]
    if not macros:
        return replace(dag, tasks=tasks)
    settings = {**dag.settings, "user_defined_macros": {name: Name(name) for name in macros}}
    functions = run_name_functions() if RUN_NAME in macros else ()
    return replace(dag, settings=settings, tasks=tasks, functions=functions)


def run_name_functions() -> tuple[str, ...]:
    """How gpuflow names runs, as text: the file imports nothing of gpuflow, and its runs meet no other Airflow's."""
    text = (resources.files("gpuflow") / "airflow" / "run_names.py").read_text(encoding="utf-8")
    functions = [part for part in ast.parse(text).body if isinstance(part, ast.FunctionDef)]
    return tuple(ast.get_source_segment(text, function) or "" for function in functions)


def _stock_call(call: Any, defaults: Mapping[str, Any]) -> Any:
    if isinstance(call, Method):
        given = call.target.named
        pods = [_template(given["template"], item) for item in _items(call.named["item"])]
        partial = Call("KubernetesPodOperator.partial", (), _arguments(given, defaults))
        return Method(partial, "expand", (), {"pod_template_dict": pods})
    if call.name == "Approve":
        rest = {key: value for key, value in call.named.items() if key != "message"}
        asked = _literal(call.named["message"])
        return Call("ApprovalOperator", (), {**rest, "subject": asked, "fail_on_reject": True})
    if call.name != "GpuPodOperator":
        return call
    template = {"pod_template_dict": _template(call.named["template"], {})}
    return Call("KubernetesPodOperator", (), _arguments(call.named, defaults) | template)


def _arguments(given: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """`defaults`: what the DAG says for all tasks, which an argument here would overrule."""
    named = {key: given[key] for key in KEPT_ARGUMENTS if key in given}
    # Of a mapped task with two budgets, `retries` also has a reserve that only our operator can tell from the rest.
    retries = given.get("failures", given.get("retries", 0))
    named |= {"base_container_name": "main", "retries": retries}
    wait = given.get("queue_timeout")
    if "outputs" in given:
        named["do_xcom_push"] = True
    usual: dict[str, Any] = {
        "deferrable": True,
        "schedule_timeout_seconds": QUEUE_SECONDS if wait is None else int(timedelta(**wait.named).total_seconds()),
        "startup_timeout_seconds": 600,
        "on_finish_action": "delete_succeeded_pod",
        "log_events_on_failure": True,
    }
    return named | {key: value for key, value in usual.items() if key not in named and key not in defaults}


def _items(node: Any) -> list[dict[str, Any]]:
    """The items of a fan-out that is known already."""
    if isinstance(node, list):
        return node
    sources = node.args[0]
    lists = (range(*source.args) if isinstance(source, Call) else source for source in sources.values())
    return [dict(zip(sources, row, strict=True)) for row in itertools.product(*lists)]


def _template(pod: Call, item: Mapping[str, Any]) -> Any:
    """A pod for Airflow's renderer: as a whole out of its reach, or text by text where values are to be filled in."""
    manifest = _with_item({"apiVersion": "v1", "kind": "Pod", "metadata": pod.args[0], "spec": pod.named["spec"]}, item)
    has_calls = any(isinstance(part, Call) for part in walk(manifest))
    return _render_tree(manifest) if has_calls else Call("literal", (manifest,))


def _with_item(tree: Any, item: Mapping[str, Any]) -> Any:
    if isinstance(tree, Call) and tree.name == "item":
        return escape(text_of(item[tree.args[0]]), glued=True)
    if isinstance(tree, Call) and tree.name == "join":
        parts = [_with_item(part, item) for part in tree.args]
        return Call("join", tuple(parts)) if any(isinstance(part, Call) for part in parts) else "".join(parts)
    return with_parts(tree, lambda part: _with_item(part, item))


def _render_tree(tree: Any) -> Any:
    if isinstance(tree, Call):
        parts = tree.args if tree.name == "join" else (tree,)
        return "".join(_jinja(part) if isinstance(part, Call) else _jinja_safe(part) for part in parts)
    return _literal(tree) if isinstance(tree, str) else with_parts(tree, _render_tree)


def _literal(text: str) -> Any:
    """Text that Jinja would change stays out of its reach: tags, a last line break, and a carriage return."""
    return Call("literal", (text,)) if "{" in text or "\r" in text or text.endswith("\n") else text


def _jinja_safe(text: str) -> str:
    """Text beside a value, as a string inside Jinja where Jinja would read it otherwise."""
    if not set("{}\r") & set(text) and not text.endswith("\n"):
        return text
    # Not with JSON's escapes: Jinja would read the two halves of an emoji as two characters.
    return f"{{{{ {json.dumps(text, ensure_ascii=False)} }}}}"


def _jinja(call: Call) -> str:
    """A reference as a template. `$` is doubled because Kubernetes expands `$(NAME)` in commands and variables."""
    if call.name == "run_id":
        return f"{{{{ {RUN_NAME}(dag_run.dag_id, dag_run.run_id) }}}}"
    if (fact := jinja_fact(call)) is not None:
        return f'{{{{ ({fact}) | replace("$", "$$") }}}}'
    if call.name == "param":
        value, kind = f"params[{json.dumps(call.args[0])}]", call.args[1] if len(call.args) > 1 else "any"
    else:
        task, name = json.dumps(call.args[0]), json.dumps(call.args[1])
        kind = call.args[2] if len(call.args) > 2 else "string"
        value = f"ti.xcom_pull(task_ids={task})[{name}]"
        if call.args[1] == XCOM_RETURN_KEY:  # the file itself, where it is no map with such an entry
            whole = f"ti.xcom_pull(task_ids={task})"
            value = f"({value} if {whole} is mapping and {name} in {whole} else {whole})"
        if call.named.get("each"):
            kind, value = "json", f"(ti.xcom_pull(task_ids=[{task}]) | map(attribute={name}) | list)"
    if kind == "any":
        value = f"({value} if {value} is string else {value} | tojson)"
    elif kind != "string":
        value = f"({value} | {'float | ' if kind == 'float' else ''}tojson)"
    # Nobody checks that what a step wrote is of its type; `float` makes a number of anything.
    return f"{{{{ {value} }}}}" if kind == "float" else f'{{{{ {value} | replace("$", "$$") }}}}'


STOCK_OPERATOR = "KubernetesPodOperator"
RENDERED_ONCE = "RenderedOnce"
MARKS = ("{{", "{%", "{#")
QUOTED_JINJA = re.compile(r'\{\{ "((?:[^"\\]|\\.)*)" \}\}')
"""Text beside a value, which stands in quotes inside Jinja (`standalone._kept`)."""
DEFINITION = f'''class Rendered(dict):
    """Values that are filled in already."""


class {RENDERED_ONCE}({STOCK_OPERATOR}):
    """The stock operator. `airflow dags test` renders it again after a deferral, and would read braces of the pod."""

    def render_template(self, content, *args, **kwargs):
        if isinstance(content, Rendered):
            return content
        value = super().render_template(content, *args, **kwargs)
        return Rendered(value) if isinstance(value, dict) else value'''


def rendered_once(dag: Dag) -> Dag:
    """The DAG with that operator for the tasks whose pods hold braces of their own."""
    tasks = [replace(made, call=_render_once(made.call)) if _has_marks(made.call) else made for made in dag.tasks]
    if tasks == dag.tasks:
        return dag
    return replace(dag, tasks=tasks, functions=(*dag.functions, DEFINITION))


def _render_once(call: Any) -> Any:
    if isinstance(call, Method):
        return replace(call, target=_render_once(call.target))
    if isinstance(call, Call) and call.name in (STOCK_OPERATOR, f"{STOCK_OPERATOR}.partial"):
        return replace(call, name=call.name.replace(STOCK_OPERATOR, RENDERED_ONCE))
    return call


def _has_marks(tree: Any) -> bool:
    """Whether a text that no renderer may change has what Jinja would read."""
    return any(mark in text for text in _kept_texts(tree, False) for mark in MARKS)


def _kept_texts(tree: Any, kept: bool) -> Iterable[str]:
    if isinstance(tree, str):
        yield from [tree] if kept else QUOTED_JINJA.findall(tree)
    elif isinstance(tree, dict):
        for key, value in tree.items():
            yield from _kept_texts(key, kept)
            yield from _kept_texts(value, kept)
    elif isinstance(tree, list | tuple):
        for value in tree:
            yield from _kept_texts(value, kept)
    elif isinstance(tree, Method):
        yield from _kept_texts((tree.target, tree.args, tree.named), kept)
    elif isinstance(tree, Call):
        yield from _kept_texts((tree.args, tree.named), kept or tree.name == "literal")


OLDER = ("2.10", "2.11", "3.0", "3.1")
"""What a file can be written for besides; each was tried (docs/reference/versions.md)."""
CURRENT = ("3.2", "3.3")
IN_2 = {
    "CronTriggerTimetable": "airflow.timetables.trigger",
    "DAG": "airflow.models.dag",
    "EmptyOperator": "airflow.operators.empty",
    "Param": "airflow.models.param",
    "TaskGroup": "airflow.utils.task_group",
    "literal": "airflow.utils.template",
}
IN_3_0 = {
    "AssetOrTimeSchedule": "airflow.timetables.assets",
    "CronTriggerTimetable": "airflow.timetables.trigger",
    "literal": "airflow.sdk.definitions.template",  # airflow.sdk of 3.0 and 3.1 names it, and cannot import it
}
SCHEDULED_IN_2 = 'dag_run.data_interval_end if dag_run.run_type in ("scheduled", "backfill") else dag_run.logical_date'
"""Airflow 2 has no `run_after`; of its own timetables the end of the interval is when a run is due."""
FIRST_DAY = Call("datetime", (2020, 1, 1))
"""Airflow 2 refuses tasks without a start date. Without catch-up it is of no consequence."""

DEPLOYMENT_IN_2 = '''def deployment() -> str:
    """What tells this Airflow from others: `[gpuflow] deployment`, or an id that its first task keeps as a Variable."""
    import uuid

    from airflow.configuration import conf
    from airflow.models import Variable

    name = str(conf.get("gpuflow", "deployment", fallback="") or "").strip()
    return name or str(Variable.setdefault("gpuflow_deployment", uuid.uuid4().hex))'''
DEPLOYMENT_IN_3_0 = '''def deployment() -> str:
    """What tells this Airflow from others: `[gpuflow] deployment`, or the Variable `gpuflow_deployment`."""
    from airflow.configuration import conf
    from airflow.exceptions import AirflowException
    from airflow.sdk import Variable

    name = str(conf.get("gpuflow", "deployment", fallback="") or "").strip()
    name = name or str(Variable.get("gpuflow_deployment", default=None) or "")
    if not name:
        # Not made here: this Airflow also says "not there" when it is only out of reach.
        raise AirflowException("create the Variable gpuflow_deployment, or set [gpuflow] deployment in airflow.cfg")
    return name'''


def import_homes(version: str | None) -> Mapping[str, str]:
    """Where a file of this Airflow imports its names from."""
    if version is None or version in CURRENT:
        return HOMES
    return {**HOMES, **(IN_2 if version.startswith("2.") else IN_3_0)}


def for_version(dag: Dag, version: str | None) -> Dag:
    """A standalone DAG for another version of Airflow."""
    if version is None or version in CURRENT:
        return dag
    is_2 = version.startswith("2.")
    settings: dict[str, Any] = _rewritten(dag.settings, is_2)
    if is_2:
        settings.setdefault("start_date", FIRST_DAY)
    functions = dag.functions
    if functions:
        functions = (functions[0], DEPLOYMENT_IN_2 if is_2 else DEPLOYMENT_IN_3_0)
    tasks = [replace(made, call=_rewritten(made.call, is_2)) for made in dag.tasks]
    older = replace(dag, settings=settings, tasks=tasks, functions=functions)
    return rendered_once(older) if is_2 else older


def _rewritten(tree: Any, is_2: bool) -> Any:
    if isinstance(tree, str):
        return tree.replace(SCHEDULED_TIME, SCHEDULED_IN_2) if is_2 else tree
    tree = with_parts(tree, lambda part: _rewritten(part, is_2))
    if not isinstance(tree, Call):
        return tree
    named = dict(tree.named)
    if "retry_exponential_backoff" in named:  # before 3.2 delays double, or they do not grow
        named["retry_exponential_backoff"] = True
    if tree.name == "ApprovalOperator":
        # Its older provider has no other word for it, and newer ones still understand this one.
        named = {"execution_timeout" if key == "response_timeout" else key: named[key] for key in named}
    return replace(tree, named=named)


@refusal("GF370")
def older_refusals(request: Request) -> Iterator[Finding]:
    """What the Airflow that was asked for cannot say."""
    options = request.options_as(AirflowOptions)
    version = options.airflow
    if version is None:
        return
    if version not in (*OLDER, *CURRENT):
        known = ", ".join((*OLDER, *CURRENT))
        yield Finding("GF370", f"--airflow {version} is no Airflow that a file can be written for", hint=known)
        return
    if not options.standalone and version in OLDER:
        text = f"gpuflow.airflow needs Airflow 3.2, and --airflow {version} asks for an older one"
        yield Finding("GF370", text, hint="add --standalone: a file with stock operators alone")
        return
    if version in OLDER:
        yield from _not_there(request.plan, version)


def _not_there(plan: Plan, version: str) -> Iterator[Finding]:
    for each in plan.steps:
        name, step, where = each.name, each.step, plan.where(each.name)
        if step.approval is not None and version != "3.1":
            hint = "Airflow asks people from 3.1 on"
            yield Finding("GF370", f'step "{name}": Airflow {version} has no approvals', where, hint)
        backoff = step.retry.backoff if step.retry is not None else None
        if backoff is not None and backoff.factor not in (1, 2):
            text = f'step "{name}": delays of Airflow {version} double or stay, and cannot grow by {backoff.factor:g}'
            yield Finding("GF370", text, where, "write backoff: {factor: 2}")
    if version.startswith("2.") and has_assets(plan):
        text = f"Airflow {version} knows no assets, which on_data and artifacts with a fixed uri become"
        yield Finding("GF370", text, Where(plan.pipeline.source.file), "start it by a schedule, or use Airflow 3")
