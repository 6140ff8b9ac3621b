"""Runs inside a real Airflow or beside a real Hera, of whatever version, as a program of its own: a file as data.

    python inside_engine.py airflow 5
    python inside_engine.py hera 5

A line of standard input names a file, where the answer goes, and the environment; two lines come back by the descriptor
of that number: the process that reads the file, and how it ended. The engine is imported once, and each file gets a
copy of that process. Both end with standard input.
It imports nothing of gpuflow, since that Python may not have it: the types of its answer (`gpuflow/formats/airflow.py`)
it loads by their path. Pods of a DAG are built by the operators themselves, so that they are what Airflow would send;
nothing is asked of a cluster, a database or a connection. Workflows are the documents that Hera makes of them; nothing
is sent: `create` and its siblings give the workflow back.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import os
import select
import signal
import sys
import traceback
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any


def _load(name: str, file: str) -> Any:
    spec: Any = importlib.util.spec_from_file_location(name, file)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuflow.formats import airflow as recorded
else:
    recorded = _load("gpuflow_recorded_dag", str(Path(__file__).resolve().parents[2] / "formats" / "airflow.py"))

MOST_BUILT = 200
"""So many copies of a mapped task are built; with more, all must be alike."""
MOST_ANSWER = 48 * 1024 * 1024
PARAMETERS: Any = {}
"""Values of parameters, as text."""
UNSET = 1_000_003
"""What Airflow's settings say where the DAG file says nothing; the caller sets it."""
POD_FIELDS = {"cmds", "arguments", "env_vars", "labels", "annotations", "name", "params"}
POD_FIELDS |= {"op_args", "op_kwargs", "item"}
"""Arguments of a mapped task that do not change what its pods ask for."""


class _OnlyInTheRun(Exception):
    """What a task makes depends on values that the file does not hold."""


IMPORTED_ONCE = {
    "airflow": ("airflow.sdk", "airflow.models.dag", "airflow.providers.cncf.kubernetes.operators.pod"),
    "hera": ("hera.workflows",),
}


def main() -> None:
    kind, told = sys.argv[1], os.fdopen(int(sys.argv[2]), "w")
    asked = os.fdopen(os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    ended, ends = os.pipe()
    os.set_blocking(ends, False)
    signal.set_wakeup_fd(ends)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    sys.path[:] = [each for each in sys.path if each != os.path.dirname(os.path.abspath(__file__))]
    for name in IMPORTED_ONCE[kind]:
        with contextlib.suppress(BaseException):  # who reads a file that needs it says so
            importlib.import_module(name)
    for line in asked:
        child = os.fork()
        if not child:
            _read_alone(kind, json.loads(line))
        told.write(f"{child}\n")
        told.flush()
        while not (end := os.waitpid(child, os.WNOHANG))[0]:
            if asked.fileno() in select.select([asked.fileno(), ended], [], [])[0]:  # nobody is there any more
                os.killpg(child, signal.SIGKILL)
                return
            os.read(ended, 4096)
        told.write(f"{end[1]}\n")
        told.flush()


def _read_alone(kind: str, asked: Any) -> None:
    """In a process and a session of its own."""
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.closerange(3, 100)
        for number in (1, 2):
            os.dup2(os.open(asked["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), number)
        os.environ.clear()
        os.environ.update(asked["environment"])
        os.chdir(os.path.dirname(asked["file"]))
        _answer(kind, asked["file"], asked["answer"], asked["params"])
    finally:
        os._exit(1)


def _answer(kind: str, file: str, answer: str, parameters: Any) -> None:
    PARAMETERS.update(parameters)
    sys.argv = [file]
    _limit_file_size()
    try:
        if kind == "hera":
            said = recorded.Answer(documents=_documents(file))
        else:
            said = recorded.Answer([_dag(dag) for dag in _dags(file)])
    except BaseException as fault:  # sys.exit in the file is a fault of the file too
        said = recorded.Answer(fault=_error_report(fault, file))
    text = json.dumps(said, default=recorded.as_json)
    if len(text) > MOST_ANSWER:
        what = "workflows" if kind == "hera" else "DAGs"
        too_large = recorded.Fault(f"its {what} are {len(text):,} bytes of data; that is too large")
        text = json.dumps(recorded.Answer(fault=too_large), default=recorded.as_json)
    Path(answer).write_text(text, encoding="utf-8")
    # Whatever threads and exit handlers the file has started are not waited for.
    os._exit(0)


def _limit_file_size() -> Any:
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_FSIZE, (256 * 1024 * 1024,) * 2)
    except (ImportError, ValueError, OSError):
        pass


def _error_report(fault: Any, file: Any) -> recorded.Fault:
    frames = [each for each in traceback.extract_tb(fault.__traceback__) if each.filename == file]
    shown = str(fault).strip().splitlines()
    name = type(fault).__name__
    missing = getattr(fault, "name", None) if isinstance(fault, ImportError) else None
    message = f"{name}: {shown[0][:500]}" if shown else name
    calls = [frame.f_locals for frame, _ in traceback.walk_tb(fault.__traceback__) if _is_variable_get(frame.f_code)]
    return recorded.Fault(
        message, frames[-1].lineno if frames else None, missing, calls[0].get("key") if calls else None
    )


def _is_variable_get(code: Any) -> Any:
    return code.co_name == "get" and code.co_filename.replace(os.sep, "/").endswith("/variable.py")


SENDING = ("create", "lint", "update", "async_create", "async_lint", "async_update", "wait", "get")


def _documents(file: str) -> list[Any]:
    """The workflows that the file leaves at its top level, and those that it would send."""
    workflow = importlib.import_module("hera.workflows").Workflow
    made: list[Any] = []

    def keep(self: Any, *_: Any, **__: Any) -> Any:
        made.append(self)
        return self

    for name in SENDING:
        if hasattr(workflow, name):
            setattr(workflow, name, keep)
    sys.path.insert(0, str(Path(file).resolve().parent))
    module = _load("gpuflow_hera_file", file)
    for value in list(vars(module).values()):
        many = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else [value]
        made += [each for each in many if isinstance(each, workflow)]
    once = {id(each): each for each in made}
    return [json.loads(json.dumps(each.to_dict(), default=str)) for each in once.values()]


def _dags(file: Any) -> Any:
    """Every DAG that the file makes: those at its top level, and those that it left open or made in a function."""
    context = _context()
    name = "gpuflow_dag_file"
    sys.path.insert(0, str(Path(file).resolve().parent))
    above = next((str(each) for each in Path(file).resolve().parents if each.name == "dags"), "")
    sys.path += filter(None, [os.environ.get("AIRFLOW__CORE__DAGS_FOLDER") or above])
    if context is not None:
        context.current_autoregister_module_name = name
    module = _load(name, file)
    found = [each for each in vars(module).values() if hasattr(each, "dag_id") and hasattr(each, "task_dict")]
    if context is not None:
        found += [dag for dag, _ in context.autoregistered_dags]
    by_id: Any = {}
    for dag in found:
        by_id.setdefault(dag.dag_id, dag)
        for task in dag.task_dict.values():
            if type(task).__name__ == "OpenTask":
                task.resolve_template_files()  # a step that still lacks a value: Airflow does not load the DAG
    return [by_id[each] for each in sorted(by_id)]


def _context() -> Any:
    for name in ("airflow.sdk.definitions._internal.contextmanager", "airflow.models.dag"):
        try:
            return importlib.import_module(name).DagContext
        except (ImportError, AttributeError):
            continue
    return None


def _dag(dag: Any) -> recorded.Dag:
    group = getattr(dag, "task_group", None)
    return recorded.Dag(
        dag_id=dag.dag_id,
        max_active_tasks=_own_limit(getattr(dag, "max_active_tasks", None)),
        max_active_runs=_own_limit(getattr(dag, "max_active_runs", None)),
        schedule=_schedule(dag),
        catchup=bool(getattr(dag, "catchup", False)),
        timeout=_seconds(getattr(dag, "dagrun_timeout", None)),
        params={str(key): _json_value(_param(dag, key)) for key in dag.params},
        groups={} if group is None else dict(_groups(group)),
        tasks=[_task(task, dag) for task in dag.task_dict.values()],
    )


def _param(dag: Any, name: Any) -> Any:
    """The value of a parameter: what the caller gives, else its default; None when a run must give it."""
    try:
        found = dag.params.get(name)
    except Exception:
        found = None
    if name not in PARAMETERS or name not in dag.params or isinstance(found, str):
        return PARAMETERS.get(name, found) if isinstance(found, str) else found
    try:
        return json.loads(PARAMETERS[name])
    except ValueError:
        return PARAMETERS[name]


def _own_limit(number: Any) -> Any:
    """A limit of the file's own; None where it only is what this Airflow's settings say."""
    return number if isinstance(number, int) and number > 0 and number != UNSET else None


def _seconds(span: Any) -> Any:
    return None if span is None else int(span.total_seconds())


def _schedule(dag: Any) -> Any:
    """Whether runs start by themselves, in words."""
    for name in ("schedule", "schedule_interval"):
        if getattr(dag, name, None) is not None:
            value = getattr(dag, name)
            return value if isinstance(value, str) else type(value).__name__
    timetable = getattr(dag, "timetable", None)
    name = type(timetable).__name__
    return None if timetable is None or name == "NullTimetable" else str(getattr(timetable, "summary", name))


def _groups(group: Any) -> Any:
    """Mapped task groups: how many copies each has."""
    for child in getattr(group, "children", {}).values():
        if hasattr(child, "children"):
            given = getattr(child, "_expand_input", None)
            if given is not None:
                yield child.group_id, _count(given, child.group_id)
            yield from _groups(child)


def _task(task: Any, dag: Any) -> recorded.Task:
    lineage = [each.__name__ for each in _class(task).__mro__]
    limits = [getattr(task, f"max_active_tis_per_{per}", None) for per in ("dagrun", "dag")]
    said = recorded.Task(
        task_id=task.task_id,
        operator=lineage[0],
        upstream=sorted(task.upstream_task_ids),
        trigger_rule=str(getattr(task.trigger_rule, "value", task.trigger_rule)),
        groups=_group_ids(task),
        pool=str(getattr(task, "pool", "default_pool")),
        retries=task.retries if isinstance(task.retries, int) else 0,
        is_setup=bool(getattr(task, "is_setup", False)),
        is_teardown=bool(getattr(task, "is_teardown", False)),
        at_once=min((each for each in limits if isinstance(each, int) and each > 0), default=None),
        branches=any("Branch" in name or "ShortCircuit" in name or name == "LatestOnlyOperator" for name in lineage),
        executor_config=_override(task),
    )
    try:
        said = _with_pods(said, task, lineage, dag)
        return said if said.waits and not (said.deferrable and _parked_are_free()) else replace(said, at_once=None)
    except _OnlyInTheRun as fault:
        because = str(fault)
    except Exception as fault:
        name = getattr(_class(task), "custom_operator_name", lineage[0])
        because = f"{name} cannot make its pod here: {_error_report(fault, '').message}"
    return replace(said, makes="unseen", because=because)


def _parked_are_free() -> bool:
    """Whether this Airflow does not count deferred copies of a task: 3.2 began to."""
    return not hasattr(importlib.import_module("airflow.ti_deps.dependencies_states"), "ACTIVE_STATES")


def _is_stock(operator: Any) -> bool:
    """Whether nothing but Airflow's own code makes its pod."""
    made_by = [getattr(type(operator), name, None) for name in ("execute", "execute_sync", "get_or_create_pod")]
    return all(getattr(each, "__module__", "airflow.").startswith("airflow.") for each in made_by if each is not None)


def _class(task: Any) -> Any:
    """The operator's class; of a mapped task, that of its copies."""
    found = getattr(task, "operator_class", None)
    return found if isinstance(found, type) else type(task)


def _group_ids(task: Any) -> Any:
    """The ids of the task groups around it, the outermost first."""
    found: Any = []
    group = getattr(task, "task_group", None)
    while group is not None and getattr(group, "group_id", None):
        found.insert(0, group.group_id)
        group = getattr(group, "parent_group", getattr(group, "task_group", None))
    return found


def _override(task: Any) -> Any:
    """What `executor_config` says of the pod that a KubernetesExecutor would run the task in."""
    given = getattr(task, "executor_config", None) or {}
    if not isinstance(given, dict) or not (given.get("pod_override") or given.get("KubernetesExecutor")):
        return None
    return _json_value(given.get("pod_override") or given.get("KubernetesExecutor"))


def _with_pods(said: recorded.Task, task: Any, lineage: Any, dag: Any) -> recorded.Task:
    """The task with what it makes."""
    if "SparkKubernetesOperator" in lineage:
        raise _OnlyInTheRun("it creates a SparkApplication, whose driver and executors Spark makes")
    if "MakeClaim" in lineage and hasattr(task, "size"):
        name, kind = str(getattr(task.name, "name", task.name)), task.storage_class
        return replace(said, claim=recorded.Claim(name, str(task.size), str(task.access), kind))
    if "TriggerDagRunOperator" in lineage:
        return replace(said, starts=str(getattr(task, "trigger_dag_id", "?")))
    if not {"KubernetesPodOperator", "KubernetesCreateResourceOperator"} & set(lineage):
        return said
    alike = [_with_objects(said, each, lineage) for each in _copies(task, dag)]
    said = replace(alike[0], made=_distinct(made for each in alike for made in each.made))
    if getattr(task, "operator_class", None) is not None and hasattr(task, "partial_kwargs"):
        said = replace(said, copies=_count(_expansion(task), task.task_id, dag))
    return _with_gpuflow_fields(said, _first(task, dag)) if "GpuPodOperator" in lineage else said


def _distinct(made: Iterable[recorded.Made]) -> list[recorded.Made]:
    """The distinct things that the copies make, with how many copies make each."""
    found: dict[str, recorded.Made] = {}
    for each in made:
        found.setdefault(json.dumps(each.objects, sort_keys=True), recorded.Made(0, each.objects)).copies += 1
    return list(found.values())


def _copies(task: Any, dag: Any) -> Any:
    """The operators to build: the task itself, or as many copies of a mapped task as are not all alike."""
    if not hasattr(task, "partial_kwargs"):
        return [task]
    given = _expansion(task)
    if given is getattr(task, "op_kwargs_expand_input", None):
        return [_first(task, dag)]  # the arguments of a decorated function change no pod
    rows = _rows(given)
    changing = sorted({name for row in rows or [dict.fromkeys(_names(given))] for name in row} - POD_FIELDS)
    if not changing:
        return [_first(task, dag)]
    if rows is None:
        raise _OnlyInTheRun(f"{', '.join(changing)} of each copy is only known in the run")
    if len(rows) > MOST_BUILT:
        raise _OnlyInTheRun(f"it has {len(rows):,} copies with different {', '.join(changing)}; too many to build each")
    return [task.unmap(row) for row in rows]


def _first(task: Any, dag: Any) -> Any:
    """One copy of a mapped task, with made-up values for arguments that do not change what its pod asks for."""
    if not hasattr(task, "partial_kwargs"):
        return task
    given = _expansion(task)
    if given is getattr(task, "op_kwargs_expand_input", None):
        return task.unmap({"op_kwargs": dict.fromkeys(_names(given))})
    rows = _rows(given)
    if rows:
        return task.unmap(rows[0])
    blank: Any = {"env_vars": {}, "labels": {}, "annotations": {}, "params": {}, "op_kwargs": {}, "item": {}}
    return task.unmap({name: blank.get(name, "x" if name == "name" else []) for name in _names(given)})


def _expansion(task: Any) -> Any:
    inner = getattr(task, "op_kwargs_expand_input", None)
    return getattr(task, "expand_input", None) if inner is None else inner


def _names(given: Any) -> Any:
    value = getattr(given, "value", None)
    if isinstance(value, dict):
        return list(value)
    return ["expand_kwargs"] if value is not None else []


def _rows(given: Any) -> Any:
    """The arguments of each copy; None where only the run knows them, or where there are too many to list."""
    value = getattr(given, "value", None)
    if isinstance(value, dict):
        if not all(isinstance(each, (list, tuple, dict)) for each in value.values()):
            return None
        count = 1
        for each in value.values():
            count *= len(each)
        if count > 10_000:
            return None
        rows: Any = [{}]
        for name, each in value.items():
            items = list(each.items()) if isinstance(each, dict) else list(each)
            rows = [{**row, name: one} for row in rows for one in items]
        return rows
    if isinstance(value, (list, tuple)) and all(isinstance(each, dict) for each in value):
        return [dict(each) for each in value]
    return None


def _count(given: Any, name: Any, dag: Any = None) -> recorded.Copies:
    """How many copies a mapped task or group has: a number, or why only the run knows."""
    value: Any = getattr(given, "value", None)
    if isinstance(value, (list, tuple)):
        return recorded.Copies(len(value))
    number, conditional = 1, None
    for key, each in value.items() if isinstance(value, dict) else ():
        if isinstance(each, (list, tuple, dict)):
            number *= len(each)
            continue
        listed = _listed_items(each, dag)
        if listed is None:
            return recorded.Copies(None, because=f"{name} is mapped over {key}, {_origin(each)}")
        if listed.number is None or len(value) == 1:
            return listed
        number, conditional = number * listed.number, conditional or listed.conditional
    if not isinstance(value, dict):
        return recorded.Copies(None, because=f"{name} is mapped over {_origin(value)}")
    return recorded.Copies(number, conditional)


def _origin(value: Any) -> Any:
    operator = getattr(value, "operator", None)
    return f"what task {operator.task_id} returns" if operator is not None else "a value that only the run knows"


def _listed_items(value: Any, dag: Any) -> recorded.Copies | None:
    """The items that a task of gpuflow's lists, where they are in the file; None when it is no such list."""
    lister: Any = getattr(value, "operator", None)
    if dag is None or type(lister).__name__ != "ListItems":
        return None
    said = recorded.Copies(1)
    for outer in lister.within[:1]:
        found = dag.task_dict.get(outer)
        said = _listed_items(type("Output", (), {"operator": found}), dag) or said
    own: Any = 1
    because = None
    for name, source in lister.for_each.items():
        if type(source).__name__ == "param":
            source = _param(dag, source.name)
        if isinstance(source, (list, tuple, range)):
            own = None if own is None else own * len(source)
        else:
            own, because = None, f"the items of {name} are only known in the run"
    return recorded.Copies(
        None if own is None or said.number is None else said.number * own,
        _condition(lister) if _condition(lister) == recorded.BY_ITEM else said.conditional or _condition(lister),
        said.because or because,
        [*said.levels, recorded.Level(lister.task_id, own, because)],
    )


def _condition(operator: Any) -> str | None:
    """What the condition of a task of gpuflow's is about; None without one."""
    return None if operator.when is None else recorded.BY_ITEM if "item(" in repr(operator.when) else recorded.BY_RUN


class _NoHook:
    """Stands in for the connection, which is no part of the file."""

    is_in_cluster = False

    def get_namespace(self) -> None:
        return None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("get_xcom_sidecar"):
            return lambda: None
        raise AttributeError(f"a DAG is read without a connection to a cluster ({name})")


def _with_objects(said: recorded.Task, operator: Any, lineage: Any) -> recorded.Task:
    """The task with what one copy of it makes."""
    if "GpuGangOperator" in lineage:
        return _task_record(said, "objects", [_json_value(operator.jobset())], operator)
    if "GpuPodOperator" in lineage:
        template = operator.template
        pod = template if isinstance(template, dict) else {"metadata": template.metadata, "spec": template.spec}
        return _task_record(said, "pods", [_json_value(pod)], operator, has_outputs=bool(operator.outputs))
    if "KubernetesCreateResourceOperator" in lineage:
        import yaml

        text = operator.yaml_conf
        if text is None:
            text = Path(operator.yaml_conf_file).read_text(encoding="utf-8")
        objects = [_json_value(each) for each in yaml.safe_load_all(text) if isinstance(each, dict)]
        return replace(said, makes="objects", made=[recorded.Made(1, objects)], waits=False)
    operator.__dict__["hook"] = _NoHook()
    has_outputs, operator.do_xcom_push = bool(getattr(operator, "do_xcom_push", False)), False
    if getattr(operator, "pod_template_dict", None):
        operator.pod_template_dict = _without_literals(operator.pod_template_dict)
    if getattr(operator, "pod_template_file", None):
        operator.pod_template_file = _path(operator, operator.pod_template_file)
    if "KubernetesJobOperator" in lineage:
        job = _json_value(operator.build_job_request_obj(None))
        waits = bool(getattr(operator, "wait_until_job_complete", False))
        return _task_record(said, "objects", [job], operator, has_outputs=has_outputs, waits=waits)
    said = replace(said, is_stock=_is_stock(operator))
    return _task_record(
        said, "pods", [_json_value(operator.build_pod_request_obj(None))], operator, has_outputs=has_outputs
    )


def _without_literals(tree: Any) -> Any:
    """A pod without `literal`, which keeps text from Airflow's templates until they are filled in."""
    if type(tree).__name__ == "LiteralValue":
        return _without_literals(tree.value)
    if isinstance(tree, dict):
        return {key: _without_literals(each) for key, each in tree.items()}
    return [_without_literals(each) for each in tree] if isinstance(tree, list) else tree


def _path(operator: Any, name: Any) -> Any:
    """A template beside the DAG file, as Airflow's search path would find it."""
    folder = Path(sys.argv[0]).resolve().parent
    return name if os.path.isabs(name) or not (folder / name).exists() else str(folder / name)


def _task_record(
    said: recorded.Task, makes: str, objects: Any, operator: Any, has_outputs: bool = False, waits: bool = True
) -> recorded.Task:
    action, space = getattr(operator, "on_finish_action", None), getattr(operator, "namespace", None)
    return replace(
        said,
        makes=makes,
        made=[recorded.Made(1, [_without_names(each) for each in objects])],
        has_outputs=has_outputs,
        waits=waits,
        deferrable=bool(getattr(operator, "deferrable", False)),
        keeps=str(getattr(action, "value", action)),
        namespace=None if space is None else str(_json_value(space)),
    )


def _without_names(made: Any) -> Any:
    """Without what is new each time, so that copies can be compared, and without the namespace: the caller says it."""
    found = {**made, "metadata": _metadata_without_name(made)}
    template = (made.get("spec") or {}).get("template")
    if isinstance(template, dict):
        found["spec"] = {**made["spec"], "template": {**template, "metadata": _metadata_without_name(template)}}
    return found


def _metadata_without_name(made: Any) -> Any:
    return {key: each for key, each in (made.get("metadata") or {}).items() if key not in ("name", "namespace")}


def _with_gpuflow_fields(said: recorded.Task, operator: Any) -> recorded.Task:
    """The task with what only gpuflow's own operator says."""
    budgets = operator.budgets
    more = budgets.failures + budgets.interruptions if budgets.any is None else budgets.any
    limits = [recorded.PodLimit(each.most, each.group, list(each.per), list(each.items)) for each in operator.limits]
    return replace(
        said, when=_condition(operator), only_after_failure=operator.only_after_failure, limits=limits, tries=1 + more
    )


def _json_value(value: Any, depth: Any = 0) -> Any:
    """A value as JSON: objects of the Kubernetes client as their manifest, anything else as its text."""
    if depth > 60:
        return "…"
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, dict):
        return {str(key): _json_value(each, depth + 1) for key, each in value.items()}
    if isinstance(value, (list, tuple, set, range)):
        return [_json_value(each, depth + 1) for each in list(value)[:10_000]]
    if hasattr(value, "openapi_types") and hasattr(value, "attribute_map"):
        manifest = {}
        for name, key in value.attribute_map.items():
            each = getattr(value, name)
            if each is not None and each != [] and each != {}:
                manifest[key] = _json_value(each, depth + 1)
        return manifest
    return repr(value)[:200]


if __name__ == "__main__":
    main()
