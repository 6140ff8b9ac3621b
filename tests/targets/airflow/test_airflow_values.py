"""Values of a run, items of fan-outs, limits on pods, and what the API server's refusals mean.

Tests gpuflow/airflow/approvals.py, gpuflow/airflow/limits.py, gpuflow/airflow/provider.py,
gpuflow/airflow/references.py, gpuflow/airflow/refusals.py and gpuflow/airflow/tasks.py.
"""

from __future__ import annotations

import json
import time
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException, AirflowSkipException
from airflow.providers.standard.operators.hitl import ApprovalOperator
from kubernetes.client.exceptions import ApiException

from gpuflow.airflow import (
    Approve,
    DeleteClaim,
    ListItems,
    MakeClaim,
    at_most,
    claim,
    deadline,
    item,
    join,
    output,
    param,
    run_id,
)
from gpuflow.airflow.limits import is_beyond, is_full
from gpuflow.airflow.links import SourceLink
from gpuflow.airflow.provider import get_provider_info
from gpuflow.airflow.refusals import AGAIN, EXISTS, NEVER, WAIT, read_refusal, refusal_hint
from gpuflow.site import Site
from gpuflow.spec.loading import loads
from gpuflow.targets.airflow.pools import pools

from .playing import Stage
from .stand_in import quota_words


def context(item: dict[str, Any] | None = None, **given: Any) -> Any:
    return Stage(**given).context(SimpleNamespace(task_id="t", retries=0, item=item or {}))


def test_values_reach_a_container_as_text_or_compact_json() -> None:
    seen = context({"suite": "mmlu"}, params={"lr": 1, "go": True, "rows": [1, "a"]})
    texts = [
        param("lr", "float"),
        param("go"),
        param("rows"),
        item("suite"),
        join("--s=", item("suite"), "/", param("lr")),
    ]
    assert [value.text(seen) for value in texts] == ["1.0", "true", '[1,"a"]', "mmlu", "--s=mmlu/1"]


def test_the_name_of_a_run_is_short_the_same_for_all_tasks_and_fit_for_kubernetes() -> None:
    name = run_id().value(context())
    assert name == run_id().value(context())
    assert claim("finetune-data").value(context()) == f"finetune-data-{name}"
    assert len(name) == 16
    assert name.isalnum()


def test_conditions_are_written_with_operators_and_evaluated_in_the_run() -> None:
    seen = context(params={"deploy": True, "region": "eu"}, outputs={("report", "accuracy"): "0.95"})
    accuracy = output("report", "accuracy", "float")
    assert ((accuracy > 0.9) & param("deploy")).value(seen) is True
    assert ((accuracy < 0.9) | ~param("deploy")).value(seen) is False
    assert param("region").is_in(["eu", "us"]).value(seen) is True
    assert (accuracy > 0.9).value(seen) is True


def test_and_or_and_not_cannot_be_used_by_mistake() -> None:
    with pytest.raises(TypeError, match=r"use &, \| and ~"):
        bool(param("a") and param("b"))


def test_a_missing_output_is_named_unless_it_has_a_default() -> None:
    with pytest.raises(LookupError, match='task "a" wrote no output "b"'):
        output("a", "b").value(context())
    assert output("a", "b", "float", default=0.5).value(context()) == 0.5


def test_outputs_of_a_mapped_task_come_as_a_list_also_when_there_is_one() -> None:
    seen = context(outputs={("fan", "loss"): ["0.5"]})
    assert output("fan", "loss", "float", each=True).value(seen) == [0.5]


def test_a_step_of_a_flattened_sub_pipeline_reads_the_outputs_of_its_own_item() -> None:
    listed = [{"e.suite": suite, "shard": shard} for suite in ("a", "b") for shard in range(2)]
    seen = context(
        {"e.suite": "b"}, outputs={("e.gen-items", "return_value"): [listed], ("e.gen", "path"): list("wxyz")}
    )
    value = output("e.gen", "path", each=True, items="e.gen-items", same=["e.suite"])
    assert value.value(seen) == ["y", "z"]


def listed(task: Any, **given: Any) -> Any:
    return task.execute(Stage(**given).context(task))


def test_items_are_every_combination_whose_condition_holds() -> None:
    sources = {"suite": param("suites"), "seed": range(2)}
    task = ListItems(task_id="items", for_each=sources, when=item("suite") != "b")
    assert listed(task, params={"suites": ["a", "b"]}) == [{"suite": "a", "seed": 0}, {"suite": "a", "seed": 1}]


def test_items_inside_others_follow_those_that_earlier_steps_kept() -> None:
    outer, kept = [{"e.s": "a"}, {"e.s": "b"}], [{"e.s": "b", "shard": 0}]
    task = ListItems(task_id="items", within=["outer", "kept"], keys=["e.s"], for_each={"n": [1, 2]})
    outputs = {("outer", "return_value"): [outer], ("kept", "return_value"): [kept]}
    assert listed(task, outputs=outputs) == [{"e.s": "b", "n": 1}, {"e.s": "b", "n": 2}]


def test_no_items_skip_the_fan_out_and_too_many_are_refused_with_the_setting() -> None:
    with pytest.raises(AirflowSkipException):
        listed(ListItems(task_id="items", for_each={"x": param("xs")}), params={"xs": []})
    with pytest.raises(AirflowFailException, match="max_map_length"):
        listed(ListItems(task_id="items", for_each={"x": range(2000)}))
    with pytest.raises(AirflowFailException, match="needs a list"):
        listed(ListItems(task_id="items", for_each={"x": param("xs")}), params={"xs": "abc"})


def test_equal_items_are_refused_where_what_belongs_to_an_item_is_found_by_it() -> None:
    sources = {"x": param("xs"), "n": [1, 2]}
    assert len(listed(ListItems(task_id="items", for_each=sources), params={"xs": ["a", "a"]})) == 4
    with pytest.raises(AirflowFailException, match="contains the item x=a, n=1 twice"):
        listed(ListItems(task_id="items", for_each=sources, distinct=True), params={"xs": ["a", "a"]})
    assert len(listed(ListItems(task_id="items", for_each=sources, distinct=True), params={"xs": ["1", 2]})) == 4


def test_a_limit_counts_pods_or_items() -> None:
    pods = at_most(2).query(context())
    assert is_full(pods, [("a", {}), ("b", {})])
    assert not is_full(pods, [("a", {})])
    assert is_beyond(pods, "c", [("a", {}), ("b", {}), ("c", {})])
    limit = at_most(1, "e", items=["e.s"])
    mine, other = limit.labels(context({"e.s": "a"})), limit.labels(context({"e.s": "b"}))
    items = limit.query(context({"e.s": "a"}))
    assert is_full(items, [("x", other)])
    assert not is_full(items, [("x", mine), ("y", mine)]), "more pods of the same item are no more items"
    assert mine[limit.label] == other[limit.label]


def test_a_limit_per_item_counts_each_item_apart() -> None:
    limit = at_most(1, "e", per=["e.s"])
    assert limit.labels(context({"e.s": "a"})) != limit.labels(context({"e.s": "b"}))


@pytest.mark.parametrize(
    ("status", "message", "then", "code"),
    [
        (403, quota_words("1", "8", "8"), WAIT, ""),
        (403, quota_words("16", "0", "8"), NEVER, "GF501"),
        (403, 'pods "p" is forbidden: failed quota: q: must specify limits.memory for: main', NEVER, "GF501"),
        (403, 'pods "p" is forbidden: status unknown for quota: q, resources: pods', WAIT, ""),
        (403, 'pods "p" is forbidden: maximum cpu usage per Container is 1, but limit is 2', NEVER, "GF502"),
        (403, 'pods "p" is forbidden: violates PodSecurity "restricted:latest": host namespaces', NEVER, "GF504"),
        (403, 'pods "p" is forbidden: no PriorityClass with name x was found', NEVER, "GF505"),
        (422, 'Pod "p" is invalid', NEVER, "GF503"),
        (404, 'namespaces "x" not found', NEVER, "GF503"),
        (429, "too many requests", AGAIN, ""),
        (409, "Operation cannot be fulfilled on resourcequotas: the object has been modified", AGAIN, ""),
        (500, "resource quota evaluation timed out", AGAIN, ""),
        (None, "", AGAIN, ""),
    ],
)
def test_every_refusal_means_wait_try_again_or_never(status: int | None, message: str, then: str, code: str) -> None:

    refusal = read_refusal(status, json.dumps({"message": message, "reason": "Forbidden"}))
    assert (refusal.then, refusal.code) == (then, code)


def test_an_account_that_may_not_make_pods_is_not_told_to_ask_for_less() -> None:
    who = 'User "system:serviceaccount:a:b" cannot create resource "pods" in API group ""'
    words = f'pods is forbidden: {who} in the namespace "ml"'
    refusal = read_refusal(403, json.dumps({"message": words, "reason": "Forbidden"}))
    assert (refusal.then, refusal.because) == (NEVER, "Airflow may not create pods there (HTTP 403)")
    assert "Role" in refusal_hint(refusal.words)
    assert "ask for less" in refusal_hint("exceeded quota")


def test_a_pod_that_is_there_already_is_taken() -> None:
    assert read_refusal(409, b'{"reason": "AlreadyExists", "message": "x"}').then == EXISTS


class Volumes:
    """The part of the API that keeps claims, with the answers of the real one."""

    def __init__(self) -> None:
        self.claims: dict[str, Any] = {}

    def create_namespaced_persistent_volume_claim(self, namespace: str, body: Any) -> None:
        if body["metadata"]["name"] in self.claims:
            raise ApiException(status=409)
        self.claims[body["metadata"]["name"]] = body

    def delete_namespaced_persistent_volume_claim(self, name: str, namespace: str) -> None:
        if self.claims.pop(name, None) is None:
            raise ApiException(status=404)


def test_a_volume_of_a_run_is_made_once_and_deleted_however_often_a_try_is_repeated() -> None:
    api, name = Volumes(), claim("finetune-data")
    make = MakeClaim(task_id="claim-data", name=name, size="10Gi", storage_class="fast")
    delete = DeleteClaim(task_id="delete-claim-data", name=name)
    make._api_and_namespace = delete._api_and_namespace = lambda: (api, "ml")
    made = [make.execute(context()) for _ in range(2)]
    assert made == [name.value(context())] * 2
    assert api.claims[made[0]]["spec"] == {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "10Gi"}},
        "storageClassName": "fast",
    }
    for _ in range(2):
        delete.execute(context())
    assert api.claims == {}


def test_pools_have_a_slot_for_each_gpu_and_count_waiting_tasks() -> None:
    text = "apiVersion: gpuflow/v1\nkind: Pipeline\nname: p\ndefaults: {image: i}\n"
    steps = "steps: {a: {command: [x], gpu: a100-80gb x 4}, b: {command: [x], mig: 1g.10gb of a100-80gb}}"
    found, _ = pools([loads(text + steps)], Site.load("nvidia"), {"nvidia.com/gpu": 16})
    assert {name: pool["slots"] for name, pool in found.items()} == {"gpu": 16, "gpu-mig-1g.10gb": 1}
    assert all(pool["include_deferred"] for pool in found.values())


def test_airflow_accepts_what_the_provider_says_about_itself() -> None:
    import importlib.resources

    import jsonschema

    schema = json.loads((importlib.resources.files("airflow") / "provider_info.schema.json").read_text())
    jsonschema.validate(get_provider_info(), schema)


@pytest.mark.parametrize(("own", "left"), [(None, 600), (timedelta(hours=1), 600), (timedelta(minutes=5), 300)])
def test_nobody_is_asked_longer_than_the_sub_pipeline_may_take(
    own: timedelta | None, left: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ApprovalOperator, "execute", lambda self, context: self.response_timeout)
    limit = deadline("release", timedelta(hours=1), since=output("release.begin", "return_value", "float"))
    ask = Approve(task_id="ask", message="Go on?", response_timeout=own, deadlines=[limit])
    seen = Stage(outputs={("release.begin", "return_value"): [time.time() - 3000]}).context(ask)
    assert ask.execute(seen).total_seconds() == pytest.approx(left, abs=60)


def test_nobody_is_asked_when_the_time_of_the_sub_pipeline_is_over() -> None:
    limit = deadline("release", timedelta(hours=1), since=output("release.begin", "return_value", "float"))
    ask = Approve(task_id="ask", message="Go on?", deadlines=[limit])
    seen = Stage(outputs={("release.begin", "return_value"): [time.time() - 3601]}).context(ask)
    with pytest.raises(AirflowFailException, match="the sub-pipeline release took longer"):
        ask.execute(seen)


def test_a_link_to_the_source_leads_to_the_file_whatever_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__GPUFLOW__SOURCE_URL", "https://git.example.com/team/repo/blob/main/")
    names = {
        "pipelines/p.yaml#L3": "pipelines/p.yaml#L3",
        'a b"?x=<y>\u202e.yaml#L1': "a%20b%22%3Fx%3D%3Cy%3E%E2%80%AE.yaml#L1",
    }
    for source, path in names.items():
        link = SourceLink().get_link(SimpleNamespace(source=source), ti_key=None)
        assert link == f"https://git.example.com/team/repo/blob/main/{path}"
