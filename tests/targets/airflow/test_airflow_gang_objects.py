"""What must be there before the object of a gang, as Airflow's operator makes it: its requests, in their order.

In the place of the client is a table of objects. tests/cluster/test_gang_definitions.py asks a real API server.

Tests gpuflow/airflow/gang_operator.py and gpuflow/airflow/gang_trigger.py.
"""

from __future__ import annotations

import copy
import json
from copy import deepcopy
from typing import Any

import pytest
from kubernetes.client.exceptions import ApiException

from gpuflow.airflow import GpuGangOperator, attempts
from gpuflow.airflow.gang_trigger import GpuGangTrigger
from gpuflow.airflow.pods import Pod
from gpuflow.airflow.step_pods import POD_CHECKED_KEY
from gpuflow.runtime.gangs.kinds import GROUP, WORDS, GangKind
from tests.gang_words import said

from .playing import Stage

KINDS = [each for each in WORDS.values() if each.before is not None]


class Table:
    """Objects by plural and name; `refuse` is how creating one of a plural ends."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], dict[str, Any]] = {}
        self.asked: list[str] = []
        self.refuse: dict[str, int] = {}

    def create_namespaced_custom_object(self, group: str, version: str, ns: str, plural: str, body: Any) -> Any:
        self.asked.append(f"create {plural}.{group}/{version}")
        name = body["metadata"]["name"]
        if plural in self.refuse:
            raise ApiException(status=self.refuse[plural])
        if (plural, name) in self.objects:
            answer = ApiException(status=409)
            answer.body = json.dumps({"reason": "AlreadyExists", "message": "already exists"})
            raise answer
        made = copy.deepcopy(body)
        made["metadata"]["uid"] = f"uid-{len(self.asked)}"
        self.objects[plural, name] = made
        return copy.deepcopy(made)

    def get_namespaced_custom_object(self, group: str, version: str, ns: str, plural: str, name: str) -> Any:
        return copy.deepcopy(self._found(plural, name))

    def delete_namespaced_custom_object(self, group: str, version: str, ns: str, plural: str, name: str) -> Any:
        self.asked.append(f"delete {plural}.{group}/{version}")
        self._found(plural, name)
        return self.objects.pop((plural, name))

    def patch_namespaced_custom_object(
        self, group: str, version: str, ns: str, plural: str, name: str, body: Any
    ) -> Any:
        self.asked.append(f"patch {plural}.{group}/{version}")
        self._found(plural, name)["metadata"] |= copy.deepcopy(body["metadata"])

    def _found(self, plural: str, name: str) -> dict[str, Any]:
        if (plural, name) not in self.objects:
            raise ApiException(status=404)
        return self.objects[plural, name]

    def of(self, plural: str) -> dict[str, Any]:
        (found,) = (each for (key, _), each in self.objects.items() if key == plural)
        return found


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> Table:
    made = Table()
    monkeypatch.setattr(GpuGangOperator, "_objects", made)
    return made


def operator(kind: GangKind) -> Any:
    containers = [{"name": "main", "image": "i:1", "command": ["run"]}]
    labels = {"kueue.x-k8s.io/queue-name": "research"}
    template = Pod({"labels": labels}, spec={"containers": containers})
    return GpuGangOperator(task_id="train", template=template, workers=2, namespace="ml", **said(kind.word))


def manifest(task: Any, pods: int = 0) -> dict[str, Any]:
    made: dict[str, Any] = task._manifest(Stage(store=None).context(task), attempts.Ledger(epoch=0, pods=pods))
    return made


def owners(document: dict[str, Any]) -> list[str]:
    return [each["uid"] for each in document["metadata"].get("ownerReferences", ())]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.word)
def test_it_is_made_first_and_goes_with_the_gang(kind: GangKind, table: Table) -> None:
    assert kind.before is not None
    task = operator(kind)
    first, own = f"{kind.before.plural}.{kind.before.api_version}", f"{kind.plural}.{kind.api_version}"
    task._create(manifest(task))
    assert table.asked == [f"create {first}", f"create {own}", f"patch {first}"]
    assert owners(table.of(kind.before.plural)) == [table.of(kind.plural)["metadata"]["uid"]]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.word)
def test_what_a_lost_worker_left_is_made_anew_or_given_to_the_gang(kind: GangKind, table: Table) -> None:
    assert kind.before is not None
    task = operator(kind)
    whole = manifest(task)  # each one has a secret of its own
    first, _ = kind.split(deepcopy(whole))
    assert first is not None
    where = task._prerequisite_place(kind.before)
    table.create_namespaced_custom_object(*where, {**first, "spec": {"of": "before"}})
    task._create(whole)
    assert table.of(kind.before.plural)["spec"] == first["spec"]
    # One that was lost when it had made both, and given neither to the other.
    made = table.of(kind.plural)
    del table.of(kind.before.plural)["metadata"]["ownerReferences"]
    with pytest.raises(ApiException):
        task._create(manifest(task))
    assert table.of(kind.before.plural)["spec"] == first["spec"], "the gang that is there keeps its own"
    assert owners(table.of(kind.before.plural)) == [made["metadata"]["uid"]]
    del table.of(kind.before.plural)["metadata"]["ownerReferences"]
    task._wait = lambda *arguments: arguments[2:]
    context = Stage(store=None).context(task)
    assert task._resume_or_create(context, attempts.Ledger(epoch=0), [made]) == (made["metadata"]["name"], "end")
    assert owners(table.of(kind.before.plural)) == [made["metadata"]["uid"]]
    asked = len(table.asked)
    kept = {**made, "metadata": {**made["metadata"], "labels": {POD_CHECKED_KEY: "True"}}}
    task._start = lambda *arguments: "the next"
    assert task._resume_or_create(context, attempts.Ledger(epoch=0), [kept]) == "the next" and len(table.asked) == asked


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.word)
def test_nothing_stays_where_the_gang_itself_is_refused(kind: GangKind, table: Table) -> None:
    task = operator(kind)
    table.refuse[kind.plural] = 403
    with pytest.raises(ApiException):
        task._create(manifest(task))
    assert not table.objects


def test_each_attempt_has_a_podgroup_of_its_own(table: Table) -> None:
    kind = WORDS["jobset+volcano"]
    task = operator(kind)
    for pods in (0, 1):
        task._create(manifest(task, pods))
    names = [name for plural, name in table.objects if plural == "podgroups"]
    assert len(set(names)) == 2 and {name for plural, name in table.objects if plural == "jobsets"} == set(names)
    for name in names:
        assert table.objects["podgroups", name]["spec"] == {"minMember": 2, "queue": "research"}
        (template,) = kind.templates(table.objects["jobsets", name])
        assert template["metadata"]["annotations"][GROUP] == name
        assert template["spec"]["schedulerName"] == "volcano"
        assert not any(label.startswith("kueue") for label in template["metadata"]["labels"])


def test_the_trigger_waits_for_room_for_the_podgroup_too(monkeypatch: pytest.MonkeyPatch) -> None:
    import asyncio
    from types import SimpleNamespace

    from gpuflow.airflow import pod_status

    kind = WORDS["jobset+volcano"]
    task = operator(kind)
    asked: list[str] = []

    async def request(api: Any, method: str, path: str, query: Any, body: Any) -> None:
        asked.append(f"{method} {path} {body['kind']}")

    monkeypatch.setattr(pod_status, "request", request)
    made = manifest(task)
    trigger = task._trigger(wait_for="room", pod_name="n", pod_namespace="ml", manifest=made)
    again = GpuGangTrigger(**json.loads(json.dumps(trigger.serialize()[1])))
    asyncio.run(again._try_to_create(SimpleNamespace(api_client=None)))
    assert asked == ["POST /apis/scheduling.volcano.sh/v1beta1/namespaces/ml/podgroups PodGroup"]
    assert "scheduling.volcano.sh/v1beta1" in again.meaning_of(404, None).words
