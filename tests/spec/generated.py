"""Valid pipelines, drawn at random: plain documents as YAML would hold them."""

from __future__ import annotations

import keyword
from typing import Any

from hypothesis import strategies as st

words = st.from_regex(r"[a-z][a-z0-9]{0,6}", fullmatch=True).filter(lambda word: not keyword.iskeyword(word))
texts = st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\0"), max_size=12)
quantities = st.sampled_from(["1", "500m", "2Gi", "1.5Gi", "1e3", "100M", "0.1"])
durations = st.sampled_from(["30s", "10m", "1h30m", "2d", "90s"])
counts = st.integers(1, 9)
MODELS = ("a100-80gb", "h100-80gb", "l4", "t4")
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.floats(-1e9, 1e9) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=5,
)


def some(required: dict[str, Any], optional: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    """A mapping with all of the one and any of the other."""
    return st.fixed_dictionaries(required, optional=optional)


amounts = quantities | st.just({"request": "1", "limit": "4Gi"}) | st.just({"limit": "8"})
env_values = texts | st.fixed_dictionaries({"secret": words, "key": words}) | st.just({"config_map": "c", "key": "k"})
volumes = st.one_of(
    st.fixed_dictionaries({"claim": words}),
    st.just({"new_claim": "scratch"}),
    st.fixed_dictionaries({"config_map": words, "read_only": st.booleans()}),
    st.fixed_dictionaries({"secret": words}),
    st.fixed_dictionaries({"empty_dir": quantities}),
    st.fixed_dictionaries({"memory": quantities}),
)
retries = counts | some(
    {},
    {
        "failures": counts,
        "interruptions": counts,
        "backoff": durations | some({"start": st.just("1s")}, {"factor": counts, "max": durations}),
        "final_exit_codes": st.lists(st.integers(1, 9), max_size=2),
        "retryable_exit_codes": st.lists(st.integers(10, 20), max_size=2),
        "more_memory": st.just({"factor": 1.5, "max": "2000Gi"}),
    },
)
settings = {
    "image": st.just("registry.example.com/x:1"),
    "image_pull_policy": st.sampled_from(["Always", "IfNotPresent", "Never"]),
    "working_dir": st.just("/work"),
    "env": st.dictionaries(st.sampled_from(["A", "B", "LONG_NAME"]), env_values, max_size=3),
    "env_from": st.lists(some({"secret": words}, {"prefix": st.just("P_"), "optional": st.booleans()}), max_size=2),
    "volumes": st.dictionaries(st.sampled_from(["/data", "/cache", "/in"]), volumes, max_size=2),
    "shm": quantities,
    "cpu": amounts | counts,
    "memory": amounts,
    "labels": st.dictionaries(words, words, max_size=2),
    "annotations": st.dictionaries(words, texts, max_size=2),
    "queue": words,
    "priority": words | some({}, {"pod": words, "queue": words}),
    "spot": st.sampled_from(["never", "allow", "prefer"]) | st.just({"mode": "prefer", "fallback_after": 3}),
    "retry": retries,
    "timeout": durations,
    "cache": st.booleans(),
    "security": some({}, {"read_only_root": st.booleans(), "user": counts, "add_capabilities": st.just(["IPC_LOCK"])}),
    "kubernetes": some({}, {"resources": st.just({"rdma/hca": 1}), "scheduler": words, "host_ipc": st.booleans()}),
}
devices = st.one_of(
    st.just({}),
    st.fixed_dictionaries({"gpu": st.sampled_from(MODELS) | st.sampled_from(MODELS).map(lambda name: f"{name} x 2")}),
    st.fixed_dictionaries({"gpu": counts | st.sampled_from(["any", "any x 2"]) | some({"count": counts}, {})}),
    st.fixed_dictionaries({"gpu": st.sampled_from(["a100-80gb sxm", "a100-80gb pcie x 2", "h200 nvl"])}),
    st.fixed_dictionaries({"gpu": some({"any_of": st.just(["h100", "a100-80gb"])}, {"form": st.just("sxm")})}),
    st.fixed_dictionaries({"gpu": some({"any_of": st.just(["l4", "t4"])}, {"count": counts})}),
    st.fixed_dictionaries({"gpu": some({"memory": st.just("20Gi")}, {"count": counts})}),
    st.fixed_dictionaries({"mig": st.sampled_from(["1g.10gb of a100-80gb", "3g.40gb of a100-80gb x 2"])}),
    st.fixed_dictionaries({"shared_gpu": st.just("l4") | some({}, {"by": st.sampled_from(["time-slicing", "mps"])})}),
    st.fixed_dictionaries({"device_claim": some({"template": words}, {"request": words})}),
)
outputs = st.dictionaries(
    st.sampled_from(["rows", "score", "items", "done", "model"]),
    st.sampled_from(["string", "int", "float", "bool", "json"])
    | st.just({"type": "directory", "uri": {"join": ["s3://m/", {"run": "id"}]}})
    | st.just({"type": "int", "default": 5})
    | st.just({"type": "string", "path": "/out/x"}),
    max_size=3,
).map(
    # Each at a path of its own: two at one path are refused.
    lambda said: {
        name: {**output, "path": f"/out/{name}"} if isinstance(output, dict) and "path" in output else output
        for name, output in said.items()
    }
)
facts = st.sampled_from(["id", "name"]).map(lambda fact: {"run": fact}) | some(
    {"run": st.sampled_from(["date", "logical_date", "interval_start", "interval_end"])},
    {
        "format": st.sampled_from(["%Y/%m/%d", "%d %b %Y", "{{ ds }}%%%j", "%H:%M%:z"]),
        "timezone": st.sampled_from(["UTC", "Europe/Berlin", "America/St_Johns"]),
    },
)
"""Facts of the run. `attempt` is refused in some places."""
literally = texts.map(lambda text: {"text": text})
imported = st.just("company.alerts.page") | some(
    {"path": st.just("company.alerts.page")}, {"arguments": st.dictionaries(words, json_values, max_size=2)}
)
metrics = st.lists(
    some({"name": words, "help": words, "counter": st.just("1")}, {"when": st.just("{{status}} == Failed")}), max_size=2
)
airflow_task = some({}, {"pool": words, "pool_slots": counts, "outlets": st.just(["s3://b/x"]), "email": words})
pipeline_engines = some(
    {},
    {
        "airflow": some(
            {},
            {
                "owner": words,
                "tags": st.lists(words, max_size=2),
                "default_args": airflow_task,
                "end_date": st.sampled_from(["2030-01-31", "2030-01-31T18:00+01:00"]),
                "on_failure_callback": imported | st.lists(imported, max_size=2),
            },
        ),
        "argo": some(
            {},
            {
                "pod_gc": some({}, {"delay": durations}),
                "ttl": some({}, {"success": durations, "failure": durations}),
                "priority": st.integers(-9, 9),
                "title": words,
                "pod_metadata": some({}, {"labels": st.dictionaries(words, words, max_size=2)}),
                "metrics": metrics,
            },
        ),
        "kubeflow": some({}, {"display_name": words, "pipeline_root": st.just("s3://b/runs"), "ttl": durations}),
    },
)
step_engines = some(
    {},
    {
        "airflow": airflow_task,
        "argo": some({}, {"archive_logs": st.booleans(), "metrics": metrics}),
        "kubeflow": some({}, {"display_name": words}),
    },
)
params: dict[str, Any] = {
    "lr": st.just({"type": "float", "default": 0.1, "min": 0}),
    "mode": some({"type": st.just("string")}, {"default": st.just("a"), "enum": st.just(["a", "b"])}),
    "items": st.just({"type": "json", "default": [1, 2]}),
    "free": st.fixed_dictionaries({"type": st.just("json"), "default": json_values}),
    "flag": st.booleans(),
    "steps": st.integers(-5, 5),
    "needed": st.just({"type": "int"}),
}


@st.composite
def steps(draw: st.DrawFn, earlier: dict[str, dict[str, Any]], declared: dict[str, Any]) -> dict[str, Any]:
    """One step that may lean on the steps before it."""
    known = [(name, output) for name, step in earlier.items() for output in step.get("outputs", {})]
    references: list[Any] = [{"param": name} for name in declared] + [{"run": "id"}]
    references += [{"output": f"{name}.{output}"} for name, output in known]
    body: dict[str, Any] = {"if_skipped": "skip"}
    body |= draw(st.fixed_dictionaries({}, optional=settings))
    if earlier:
        body["needs"] = draw(st.lists(st.sampled_from(sorted(earlier)), unique=True, max_size=3))
    sources: list[Any] = [[1, 2, 3], ["a"], {"range": 3}, {"range": {"start": 1, "stop": 9, "step": 2}}]
    sources += [{"param": "items"}] if "items" in declared else []
    sources += [{"output": f"{n}.{o}"} for n, o in known if earlier[n]["outputs"][o] == "json"]
    if draw(st.booleans()):
        body["for_each"] = draw(st.dictionaries(words, st.sampled_from(sources), min_size=1, max_size=2))
        references += [{"item": name} for name in body["for_each"]]
        if draw(st.booleans()):
            body["parallel"] = draw(counts)
    if "flag" in declared and draw(st.booleans()):
        body["when"] = draw(st.sampled_from(["params.flag", "not params.flag", "params.flag or 1 < 2"]))
    texts_and_references = texts | literally | facts | st.sampled_from(references)
    if draw(st.booleans()):
        body["engines"] = draw(step_engines)
    if draw(st.booleans()):
        body["command"] = ["run", *draw(st.lists(texts_and_references, max_size=4))]
        body["args"] = draw(st.lists(texts_and_references | st.just({"join": ["a", {"run": "id"}]}), max_size=2))
    else:
        body["script"] = draw(texts | st.fixed_dictionaries({"run": texts, "interpreter": st.just(["python3", "-u"])}))
    return {**body, **draw(devices), "outputs": draw(outputs), "image": "registry.example.com/own:2"}


@st.composite
def pipelines(draw: st.DrawFn) -> dict[str, Any]:
    """A whole document."""
    declared = draw(st.fixed_dictionaries({}, optional=params))
    document: dict[str, Any] = {"apiVersion": "gpuflow/v1", "kind": "Pipeline", "name": draw(words), "params": declared}
    document |= draw(
        some(
            {},
            {
                "description": texts,
                "labels": st.dictionaries(words, words, max_size=2),
                "schedule": st.just("0 0 * * *")
                | st.just({"cron": "5 4 * * 1-5", "timezone": "UTC", "catch_up": True})
                | some(
                    {"cron": st.just("15 4 * * *"), "start": st.sampled_from(["2026-01-31", "2026-01-31T06:00"])}, {}
                ),
                "on_data": st.just("s3://lake/in") | st.just(["s3://lake/a", "s3://lake/b"]),
                "silence": st.just("GF307") | st.just(["GF341", "GF305"]),
                "engines": pipeline_engines,
                "parallel": counts,
                "deadline": durations,
                "defaults": st.fixed_dictionaries({}, optional=settings),
            },
        )
    )
    document["claims"] = {"scratch": {"size": "10Gi"}}
    body: dict[str, dict[str, Any]] = {}
    for index in range(draw(st.integers(1, 4))):
        body[f"s{index}"] = draw(steps(body, declared))
    document["steps"] = body
    if draw(st.booleans()):
        document["exit"] = {
            "bye": {"image": "x", "command": ["bye"], "on": draw(st.sampled_from(["always", "failure"]))}
        }
    return document
