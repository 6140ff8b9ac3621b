"""The same DAG without gpuflow: stock operators and Jinja, for an Airflow where nothing can be installed.

What the stock operators cannot do is refused by name (`STANDALONE_CANNOT`); the rest is rewritten task by task.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from importlib import resources
from typing import Any

from gpuflow.kubernetes.expansion import escaped
from gpuflow.spec.engine_words.airflow import AirflowTask
from gpuflow.spec.params import text_of
from gpuflow.spec.xcom_outputs import WHOLE
from gpuflow.targets.airflow.dag import Dag
from gpuflow.targets.airflow.python import Call, Method, Name, names_in
from gpuflow.targets.airflow.run_facts import ZONE, jinja_fact

QUEUE_SECONDS = 7 * 86400
"""How long a pod may wait for a node: the stock operator's two minutes would fail every queued step."""
RUN_NAME = "run_name"
CARRIED = ("task_id", "doc", "namespace", "trigger_rule", "retry_delay", "retry_exponential_backoff",
           "max_retry_delay", "max_active_tis_per_dagrun", *AirflowTask.model_fields)  # fmt: skip


def standalone(dag: Dag) -> Dag:
    """The DAG with stock operators only."""
    defaults = dag.settings.get("default_args", {})
    tasks = [replace(made, call=_stock(made.call, defaults)) for made in dag.tasks]
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


def _stock(call: Any, defaults: Mapping[str, Any]) -> Any:
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
    named = {key: given[key] for key in CARRIED if key in given}
    # Of a mapped task with two budgets, `retries` also has a reserve that only our operator can tell from the rest.
    retries = given.get("failures", given.get("retries", 0))
    named |= {"base_container_name": "main", "retries": retries}
    wait = given.get("queue_timeout")
    if "outputs" in given:
        named["do_xcom_push"] = True
    usual: dict[str, Any] = {
        "deferrable": True,
        "schedule_timeout_seconds": QUEUE_SECONDS if wait is None else _seconds(wait),
        "startup_timeout_seconds": 600,
        "on_finish_action": "delete_succeeded_pod",
        "log_events_on_failure": True,
    }
    return named | {key: value for key, value in usual.items() if key not in named and key not in defaults}


def _seconds(span: Call) -> int:
    return int(timedelta(**span.named).total_seconds())


def _items(node: Any) -> list[dict[str, Any]]:
    """The items of a fan-out that is known already."""
    if isinstance(node, list):
        return node
    rows: list[dict[str, Any]] = [{}]
    for key, source in node.args[0].items():
        values = range(*source.args) if isinstance(source, Call) else source
        rows = [{**row, key: value} for row in rows for value in values]
    return rows


def _template(pod: Call, item: Mapping[str, Any]) -> Any:
    """A pod for Airflow's renderer: as a whole out of its reach, or text by text where values are to be filled in."""
    manifest = _with_item({"apiVersion": "v1", "kind": "Pod", "metadata": pod.args[0], "spec": pod.named["spec"]}, item)
    return _rendered(manifest) if _has_calls(manifest) else Call("literal", (manifest,))


def _with_item(tree: Any, item: Mapping[str, Any]) -> Any:
    if isinstance(tree, dict):
        return {key: _with_item(value, item) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_with_item(value, item) for value in tree]
    if isinstance(tree, Call) and tree.name == "item":
        return escaped(text_of(item[tree.args[0]]), glued=True)
    if isinstance(tree, Call) and tree.name == "join":
        parts = [_with_item(part, item) for part in tree.args]
        return Call("join", tuple(parts)) if any(isinstance(part, Call) for part in parts) else "".join(parts)
    return tree


def _has_calls(tree: Any) -> bool:
    if isinstance(tree, dict):
        return any(map(_has_calls, tree.values()))
    return any(map(_has_calls, tree)) if isinstance(tree, list) else isinstance(tree, Call)


def _rendered(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {key: _rendered(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_rendered(value) for value in tree]
    if isinstance(tree, Call):
        parts = tree.args if tree.name == "join" else (tree,)
        return "".join(_jinja(part) if isinstance(part, Call) else _kept(part) for part in parts)
    return _literal(tree) if isinstance(tree, str) else tree


def _literal(text: str) -> Any:
    """Text that Jinja would change stays out of its reach: tags, a last line break, and a carriage return."""
    return Call("literal", (text,)) if "{" in text or "\r" in text or text.endswith("\n") else text


def _kept(text: str) -> str:
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
        if call.args[1] == WHOLE:  # the file itself, where it is no map with such an entry
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
