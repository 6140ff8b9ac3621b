"""What must be there before the object of an attempt: made, found again, made anew, and given to the object.

The launcher is the real one; in the place of the API server is a table of objects. Collecting what has no owner any
more is the cluster's: tests/cluster/test_gang_definitions.py.

Tests gpuflow/runtime/gangs/attempt_object.py and gpuflow/runtime/gangs/gang_command.py.
"""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from gpuflow.pod.gang_kinds import SPELLINGS
from gpuflow.runtime.gangs import attempt_object, gang_command
from gpuflow.runtime.gangs.gang_command import Launcher
from gpuflow.runtime.gangs.kinds import GROUP, WORDS, GangKind
from gpuflow.runtime.gangs.later_attempts import EarlierAttempts
from gpuflow.runtime.gangs.ranks import protocol
from gpuflow.runtime.state.attempts import Counts
from gpuflow.runtime.supervise.kube_client import ApiRefusal, ApiServer, Misuse

KINDS = [each for each in WORDS.values() if each.before is not None]
POD: dict[str, Any] = {
    "metadata": {"labels": {"kueue.x-k8s.io/queue-name": "research", "team": "nlp"}},
    "spec": {"containers": [{"name": "main", "image": "i:1", "resources": {"requests": {"memory": "8Gi"}}}]},
}


class Table(ApiServer):
    """An API server without HTTP: objects by their address, and what was asked in order."""

    def __init__(self) -> None:
        self.namespace = "ns"
        self.objects: dict[str, dict[str, Any]] = {}
        self.asked: list[str] = []

    def _request(self, method: str, path: str, body: Any, query: Any) -> dict[str, Any]:
        if path.count("/") < 4:  # which kinds there are
            rows = [
                {"name": each.plural, "kind": each.kind, "namespaced": True}
                for each in WORDS.values()
                if path == f"/apis/{each.api_version}"
            ]
            return {"resources": rows}
        if method != "GET":
            self.asked.append(f"{method} {path.split('/')[-1 if method == 'POST' else -2]}")
        if method == "POST":
            path = f"{path}/{body['metadata']['name']}"
            if path in self.objects:
                raise ApiRefusal(409, "already exists")
            made = copy.deepcopy(body)
            made["metadata"] |= {"uid": f"uid-{len(self.asked)}", "namespace": "ns"}
            self.objects[path] = made
            return copy.deepcopy(made)
        if method == "GET" and path.split("/")[-2] == "ns":
            return {"items": [copy.deepcopy(each) for key, each in self.objects.items() if key.startswith(f"{path}/")]}
        if path not in self.objects:
            raise ApiRefusal(404, "not found")
        if method == "PATCH":
            self.objects[path]["metadata"] |= copy.deepcopy(body["metadata"])
        return self.objects.pop(path) if method == "DELETE" else copy.deepcopy(self.objects[path])

    def of(self, plural: str) -> list[dict[str, Any]]:
        return [each for key, each in self.objects.items() if key.split("/")[-2] == plural]


def launcher(kind: GangKind, api: ApiServer, run: str = "r", pod: dict[str, Any] = POD) -> Launcher:
    manifest = SPELLINGS[kind.word].build(pod, 2, None if 1 in kind.sets else pod)
    words = ["--manifest={}", f"--run-id={run}", "--step=train", "--pipeline=p", f"--container={kind.container}"]
    return Launcher(gang_command.parse([*words, "--more-memory=2:64Gi"], {}), manifest, api, {})


def owners(document: dict[str, Any]) -> list[str]:
    return [each["uid"] for each in document["metadata"].get("ownerReferences", ())]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.word)
def test_it_is_made_first_and_goes_with_the_object(kind: GangKind, capsys: pytest.CaptureFixture[str]) -> None:
    assert kind.before is not None
    api = Table()
    made = launcher(kind, api).create(1, Counts(), EarlierAttempts())
    assert api.asked == [f"POST {kind.before.plural}", f"POST {kind.plural}", f"PATCH {kind.before.plural}"]
    (first,) = api.of(kind.before.plural)
    assert owners(first) == [made["metadata"]["uid"]]
    assert first["metadata"]["name"] == made["metadata"]["name"]
    assert not any(label.startswith("kueue") for label in first["metadata"]["labels"])
    assert "created in ns, attempt 1, 2 pods" in capsys.readouterr().out


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.word)
def test_one_that_a_lost_launcher_left_is_made_anew(kind: GangKind) -> None:
    assert kind.before is not None
    api = Table()
    lost = launcher(kind, api)
    first, _ = kind.split(lost.gang.body(1, 0, 0))
    assert first is not None
    attempt_object.prepare_prerequisite(
        api, kind.before.folder("ns"), {**first, "spec": {"of": "before"}}, lost.gang.is_ours
    )
    made = launcher(kind, api).create(1, Counts(), EarlierAttempts())
    (there,) = api.of(kind.before.plural)
    now, _ = kind.split(lost.gang.body(1, 0, 0, secret=made["metadata"]["annotations"].get(attempt_object.SECRET, "")))
    assert now is not None and there["spec"] == now["spec"] and owners(there) == [made["metadata"]["uid"]]


@pytest.mark.parametrize("kind", WORDS.values(), ids=lambda kind: kind.word)
def test_each_attempt_has_a_secret_of_its_own_in_every_rank_and_nobody_prints_it(
    kind: GangKind, capsys: pytest.CaptureFixture[str]
) -> None:
    pod = copy.deepcopy(POD)
    pod["spec"]["containers"].append({"name": "proxy", "image": "i:2", "env": [{"name": "A", "value": "b"}]})
    given, found = launcher(kind, Table(), pod=pod), []
    for attempt in (1, 2):
        given.create(attempt, Counts(attempt - 1), EarlierAttempts())
        body = {
            key: each for key, each in given.api.objects.items() if each["metadata"]["name"].endswith(f"-{attempt}")
        }
        (made,) = (each for key, each in body.items() if key.split("/")[-2] == kind.plural)
        if kind.through:
            (runtime,) = (each for key, each in body.items() if key.split("/")[-2] != kind.plural)
            made = {**made, "runtime": runtime}
        (secret,) = {secrets_of(template) for template in kind.templates(made)}
        found.append(secret)
    assert len({*found}) == 2 and all(len(each) == 64 for each in found)
    said = capsys.readouterr()
    assert not [each for each in found if each in said.out + said.err]


def secrets_of(template: dict[str, Any]) -> str:
    """The secret in a rank's program, and nowhere else in the pod."""
    (main, proxy) = template["spec"]["containers"]
    assert proxy["env"] == [{"name": "A", "value": "b"}]
    (secret,) = (each["value"] for each in main["env"] if each["name"] == protocol.SECRET)
    return str(secret)


def test_a_secret_that_the_manifest_brings_is_kept() -> None:
    pod, own = copy.deepcopy(POD), {"name": protocol.SECRET, "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}
    pod["spec"]["containers"][0]["env"] = [own]
    made = launcher(WORDS["jobset"], Table(), pod=pod).create(1, Counts(), EarlierAttempts())
    (template,) = WORDS["jobset"].templates(made)
    assert [each for each in template["spec"]["containers"][0]["env"] if each["name"] == protocol.SECRET] == [own]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.word)
def test_one_of_somebody_else_is_left_alone(kind: GangKind) -> None:
    assert kind.before is not None
    api = Table()
    ours = launcher(kind, api)
    theirs = {"kind": "X", "metadata": {"name": ours.gang.name(1)}, "spec": {"of": "others"}}
    api.create(kind.before.folder("ns"), theirs)
    with pytest.raises(Misuse, match="is there already, and this run did not create it"):
        ours.create(1, Counts(), EarlierAttempts())
    assert [each["spec"] for each in api.of(kind.before.plural)] == [{"of": "others"}] and not api.of(kind.plural)


@pytest.mark.parametrize("gone", [False, True])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.word)
def test_a_launcher_that_comes_back_gives_it_to_the_object(
    kind: GangKind, gone: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """The one before was lost when it had made both, and what owned them took one away."""
    assert kind.before is not None
    api = Table()
    before = EarlierAttempts(1, 1, ("node-7",))
    made = launcher(kind, api).create(3, Counts(1, 1), before)
    (path,) = (key for key in api.objects if key.split("/")[-2] == kind.before.plural)
    spec = api.objects[path]["spec"]
    api.objects[path]["metadata"]["ownerReferences"] = [{"uid": "the launcher before"}]
    if gone:
        del api.objects[path]
    again = launcher(kind, api)
    found = again.find_newest()
    assert found is not None and found["metadata"]["uid"] == made["metadata"]["uid"]
    again._adopt(found)
    (first,) = api.of(kind.before.plural)
    assert owners(first) == [made["metadata"]["uid"]] and first["spec"] == spec, "as it was for this attempt"
    assert again.gang.is_ours(first)
    assert ("it was gone, and is made anew" in capsys.readouterr().out) is gone
    # One that was lost between the two requests of the same attempt.
    assert again.create(3, Counts(1, 1), before)["metadata"]["uid"] == made["metadata"]["uid"]
    assert len(api.of(kind.plural)) == len(api.of(kind.before.plural)) == 1


def test_each_attempt_has_a_podgroup_of_its_own_and_pods_that_grow() -> None:
    kind, api = WORDS["jobset+volcano"], Table()
    given = launcher(kind, api)
    given.create(1, Counts(), EarlierAttempts())
    given.create(2, Counts(1), EarlierAttempts(1))
    groups = {each["metadata"]["name"]: each["spec"] for each in api.of("podgroups")}
    assert list(groups.values()) == [{"minMember": 2, "queue": "research"}] * 2
    asked = {}
    for each in api.of("jobsets"):
        (template,) = kind.templates(each)
        assert template["metadata"]["annotations"][GROUP] == each["metadata"]["name"]
        asked[each["metadata"]["name"]] = template["spec"]["containers"][0]["resources"]["requests"]["memory"]
    assert asked.keys() == groups.keys() and list(asked.values()) == ["8Gi", "16Gi"]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.word)
def test_a_cluster_that_does_not_know_it_is_told_before_anything_is_made(kind: GangKind) -> None:
    assert kind.before is not None
    plural = kind.before.plural

    class Without(Table):
        def _request(self, method: str, path: str, body: Any, query: Any) -> dict[str, Any]:
            if path.endswith(plural):
                raise ApiRefusal(404, "404 page not found")
            return super()._request(method, path, body, query)

    api = Without()
    with pytest.raises(Misuse, match=f"the cluster has no {kind.before.api_version}: {plural} are not installed"):
        launcher(kind, api).run()
    assert not api.asked


def test_a_refusal_to_give_it_is_said_and_ends_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    class Closed(Table):
        def _request(self, method: str, path: str, body: Any, query: Any) -> dict[str, Any]:
            if method == "PATCH":
                raise ApiRefusal(403, "podgroups is forbidden")
            return super()._request(method, path, body, query)

    kind, api = WORDS["jobset+volcano"], Closed()
    made = launcher(kind, api).create(1, Counts(), EarlierAttempts())
    assert "podgroups is forbidden; what stands before JobSet" in capsys.readouterr().out
    assert attempt_object.number(made, attempt_object.ATTEMPT) == 1 and json.dumps(made)
