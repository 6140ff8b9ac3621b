"""Attempts of a gang that are not like the first: what the launcher is told, what it notes, and what it makes of it."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuflow.quantity import Quantity
from gpuflow.runtime.base.options import BadOption
from gpuflow.runtime.base.outcomes import INTERRUPTED, OUT_OF_MEMORY, RETRYABLE, TIMED_OUT
from gpuflow.runtime.gangs import attempt_object, gang_command, later_attempts
from gpuflow.runtime.gangs.attempt_object import Gang
from gpuflow.runtime.gangs.attempt_verdict import Verdict, judge
from gpuflow.runtime.gangs.kinds import JOBSET
from gpuflow.runtime.gangs.later_attempts import Changes, EarlierAttempts, amount_of, grown_memory
from gpuflow.runtime.supervise.kube_client import Misuse
from tests.runtime.test_attempt_verdict import SURVIVORS, job, jobset, pod
from tests.runtime.test_gang_command import manifest

SPOT = {"key": "spot", "operator": "Exists"}
MEMORY = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "1500Mi"}}


def options(*words: str) -> Any:
    return gang_command.parse(["--manifest", "{}", "--run-id", "r", *words], {})


def launched(*words: str, **spec: Any) -> Gang:
    """A gang with these options, each of its pods with a sidecar before the program's container."""
    given_by = options(*words)
    body = manifest()
    template = body["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    own = {"name": "main", "resources": json.loads(json.dumps(MEMORY))}
    template["spec"] = {"containers": [{"name": "proxy", "resources": MEMORY}, own], **spec}
    made = Gang(body, given_by, None)
    made.changes = later_attempts.changes_of(given_by)
    return made


def pods_of(body: dict[str, Any]) -> dict[str, Any]:
    (each,) = JOBSET.templates(body)
    spec: dict[str, Any] = each["spec"]
    return spec


def test_every_run_out_of_memory_gives_the_program_more_and_nothing_else() -> None:
    made = launched("--more-memory", "2:3Gi")
    first = pods_of(made.body(1, 0, 0, EarlierAttempts()))
    for times, asked, limit in ((0, "1Gi", "1500Mi"), (1, "2Gi", "3000Mi"), (2, "3Gi", "3Gi"), (9, "3Gi", "3Gi")):
        proxy, own = pods_of(made.body(times + 1, times, 0, EarlierAttempts(times)))["containers"]
        assert proxy == first["containers"][0]
        assert own["resources"] == {"requests": {"cpu": "1", "memory": asked}, "limits": {"memory": limit}}


def test_without_the_options_every_attempt_is_alike() -> None:
    made = launched()
    last = EarlierAttempts(3, 4, ("node-a",))
    assert pods_of(made.body(5, 3, 4, last)) == pods_of(made.body(1, 0, 0, EarlierAttempts()))
    assert made.differences(last) == []


def test_after_enough_interruptions_it_leaves_spot_nodes() -> None:
    fields = json.dumps({"tolerations": None, "nodeSelector": {"pool": "fixed"}})
    made = launched("--fallback-after", "2", "--on-demand", fields, tolerations=[SPOT], nodeSelector={"pool": "spot"})
    for times in range(4):
        spec = pods_of(made.body(times + 1, 0, times, EarlierAttempts(interruptions=times)))
        off = times >= 2
        assert (spec["nodeSelector"], "tolerations" in spec) == ({"pool": "fixed" if off else "spot"}, not off)
    assert made.differences(EarlierAttempts(interruptions=2)) == ["off spot nodes after being interrupted 2 times"]


def test_a_later_attempt_keeps_away_from_nodes_and_its_ranks_together() -> None:
    """On every alternative of the affinity; and what places ranks by ranks is still of this gang alone."""
    near = [{"topologyKey": "rack", "labelSelector": {"matchLabels": {attempt_object.STEP: "default"}}}]
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    terms = [{"matchExpressions": [{"key": "gpu", "operator": "In", "values": [name]}]} for name in ("l4", "a100")]
    affinity = {"nodeAffinity": {required: {"nodeSelectorTerms": terms}}, "podAffinity": {required: near}}
    made = launched("--other-node", affinity=affinity)
    spec = pods_of(made.body(2, 1, 0, EarlierAttempts(failed_nodes=("a", "b"))))
    found = spec["affinity"]["nodeAffinity"][required]["nodeSelectorTerms"]
    assert [term["matchExpressions"] for term in found] == [term["matchExpressions"] for term in terms]
    away = [{"key": "metadata.name", "operator": "NotIn", "values": [name]} for name in ("a", "b")]
    assert all(term["matchFields"] == away for term in found)
    (term,) = spec["affinity"]["podAffinity"][required]
    assert term["labelSelector"] == {"matchLabels": {attempt_object.GANG: made.digest}}


def test_fields_off_spot_nodes_are_of_this_gang_too() -> None:
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    near = [{"topologyKey": "rack", "labelSelector": {"matchLabels": {attempt_object.STEP: "default"}}}]
    fields = json.dumps({"affinity": {"podAffinity": {required: near}}})
    made = launched("--fallback-after", "1", "--on-demand", fields)
    for _ in range(2):
        spec = pods_of(made.body(2, 0, 1, EarlierAttempts(interruptions=1)))
        assert spec["affinity"]["podAffinity"][required][0]["labelSelector"] == {
            "matchLabels": {attempt_object.GANG: made.digest}
        }
    assert made.changes.on_demand == json.loads(fields), "another attempt is made from the same fields"


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.lists(st.from_regex(r"[a-z][a-z0-9.-]{0,8}", fullmatch=True)))
def test_what_is_known_survives_the_launcher(memory: int, interruptions: int, nodes: list[str]) -> None:
    before = EarlierAttempts(memory, interruptions, tuple(sorted(set(nodes))))
    assert attempt_object.read_earlier_attempts(launched().body(7, 0, interruptions, before)) == before


def test_a_jobset_of_a_launcher_that_noted_nothing_has_nothing_before_it() -> None:
    body = launched().body(3, 1, 1)
    assert attempt_object.read_earlier_attempts(body) == EarlierAttempts(interruptions=1)
    body["metadata"]["annotations"][attempt_object.OUT_OF_MEMORY] = "often"
    with pytest.raises(Misuse, match=r'out-of-memory is "often", and no number'):
        attempt_object.read_earlier_attempts(body)


@given(
    st.one_of(
        st.integers(1, 2**42).map(str), st.sampled_from(["1Gi", "1000Mi", "1.5G", "2e9", "3E-1", "100m", "64Ki"])
    ),
    st.decimals("1.01", "9.99", places=2),
    st.integers(1, 2**44).map(str),
    st.integers(0, 40),
)
def test_amounts_are_those_of_exact_arithmetic(first: str, factor: Any, most: str, times: int) -> None:
    start, limit = Quantity(first).value, Quantity(most).value
    grown = -(-start * Fraction(str(factor)) ** times // 2**20) * 2**20 if times else start
    expected = start if start >= limit or not times else min(grown, limit)
    assert Quantity(grown_memory(first, str(factor), most, times)).value == expected


@pytest.mark.parametrize("text", ["", "Gi", "1 Gi", "-1Gi", "1ZB", "1e", "nan", "1Gi2"])
def test_what_is_no_amount_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no amount"):
        amount_of(text)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--more-memory", "2"], 'more-memory: "2" is no factor above 1'),
        (["--more-memory", "1:4Gi"], "is no factor above 1"),
        (["--more-memory", "x:4Gi"], "is no factor above 1"),
        (["--more-memory", "2:much"], "is no factor above 1"),
        (["--more-memory", "1/0:4Gi"], "is no factor above 1"),
        (["--fallback-after", "2"], "go together"),
        (["--on-demand", "{}"], "go together"),
        (["--fallback-after", "0", "--on-demand", "{}"], "0 is too small"),
        (["--fallback-after", "2", "--on-demand", "{"], "is no JSON"),
        (["--fallback-after", "2", "--on-demand", "[]"], "must be a map"),
        (["--fallback-after", "2", "--on-demand", '{"containers": []}'], "without containers"),
    ],
)
def test_options_that_cannot_be_are_refused_before_anything_is_created(words: list[str], sentence: str) -> None:
    with pytest.raises(BadOption, match=sentence):
        options(*words)


def test_memory_that_nobody_named_cannot_grow() -> None:
    bare = Gang(manifest(), options("--more-memory", "2:4Gi"), None)
    bare.changes = Changes("2", "4Gi")
    assert not bare.has_memory() and launched().has_memory()
    assert pods_of(bare.body(2, 1, 0, EarlierAttempts(1))) == pods_of(bare.body(2, 1, 0, EarlierAttempts()))


def on(node: str, found: dict[str, Any], **facts: Any) -> dict[str, Any]:
    """A pod on a node, with a supervisor's last words when it has some."""
    made: dict[str, Any] = json.loads(json.dumps({**found, "spec": {"nodeName": node}}))
    if facts:
        ended = made["status"]["containerStatuses"][0]["state"]["terminated"]
        ended["message"] = "gpuflow-run: words\n" + json.dumps({"gpuflow": 1, **facts})
    return made


ALIKE = [on("c", pod(1, 1)), on("d", pod(2, 1))]
KILLED = [on("c", pod(1, 137)), on("d", pod(2, 137))]
FIRST = {"outcome": RETRYABLE, "exit_code": 1, "cause_rank": 2}
NODES: dict[str, tuple[list[Any], str, str | None]] = {
    "one rank failed": ([on("b", pod(1, 1)), *SURVIVORS], RETRYABLE, "b"),
    "all exit alike, and nobody says who was first": ([on("b", pod(0, 1)), *ALIKE], RETRYABLE, None),
    "all exit alike, and rank 0 says who was first": ([on("b", pod(0, 1), **FIRST), *ALIKE], RETRYABLE, "d"),
    "rank 0 says what does not agree with its exit code": (
        [on("b", pod(0, 1), **{**FIRST, "exit_code": 3}), *ALIKE], RETRYABLE, None),
    "rank 0 names a rank that is not there": (
        [on("b", pod(0, 1), **{**FIRST, "cause_rank": 9}), *ALIKE], RETRYABLE, None),
    "rank 0 says no number": ([on("b", pod(0, 1), **{**FIRST, "cause_rank": True}), *ALIKE], RETRYABLE, None),
    "the kubelet says which one was out of memory": (
        [on("b", pod(0, 1)), on("d", pod(2, 137, reason="OOMKilled"))], OUT_OF_MEMORY, "d"),
    "only the supervisor knows that it was memory": (
        [on("b", pod(0, 137), outcome=OUT_OF_MEMORY, exit_code=137, cause_rank=1, because="rank 1: x"), *KILLED],
        OUT_OF_MEMORY, "c"),
    "a time limit is everybody's": ([on("b", pod(1, 124)), *SURVIVORS], TIMED_OUT, None),
    "an interruption is no failure of a node": (
        [on("b", pod(0, 1), **FIRST), on("d", pod(2, 143, disrupted="EvictionByEvictionAPI"))], INTERRUPTED, None),
    "rank 0 cannot call an interruption a failure of memory": (
        [on("b", pod(0, 75), outcome=OUT_OF_MEMORY, exit_code=75, cause_rank=2)], INTERRUPTED, None),
    "a pod that never had a node": ([pod(1, 1), *SURVIVORS], RETRYABLE, None),
}  # fmt: skip


@pytest.mark.parametrize("row", NODES)
def test_the_node_of_the_rank_that_failed_first(row: str) -> None:
    pods, outcome, node = NODES[row]
    for order in (pods, pods[::-1]):
        verdict = judge(jobset(), [job()], order)
        assert verdict is not None and (verdict.outcome, verdict.node) == (outcome, node), verdict


def led(body: dict[str, Any]) -> dict[str, Any]:
    """A JobSet with a leader before its workers."""
    (workers,) = body["spec"]["replicatedJobs"]
    leader = json.loads(json.dumps({**workers, "name": "leader"}))
    leader["template"]["spec"] |= {"parallelism": 1, "completions": 1}
    return {**body, "spec": {**body["spec"], "replicatedJobs": [leader, workers]}}


@pytest.mark.parametrize(("rank", "node"), [(0, "a"), (1, "b"), (2, "c"), (3, "d"), (4, None)])
def test_beside_a_leader_a_workers_rank_is_its_index_and_one(rank: int, node: str | None) -> None:
    leader = on("a", pod(0, 1), **{**FIRST, "cause_rank": rank})
    leader["metadata"]["labels"]["jobset.sigs.k8s.io/replicatedjob-name"] = "leader"
    for pods in ([leader, on("b", pod(0, 1)), *ALIKE], [*ALIKE, on("b", pod(0, 1)), leader]):
        verdict = judge(led(jobset()), [job()], pods)
        assert verdict is not None and verdict.node == node


def test_the_first_rank_of_each_set_follows_the_sets_before_it() -> None:
    assert JOBSET.first_ranks(led(jobset())) == {"leader": 0, "worker": 1}
    assert JOBSET.first_ranks(jobset()) == {"worker": 0}


def test_the_leader_grows_and_leaves_spot_nodes_in_its_own_way() -> None:
    given_by = options(
        "--more-memory", "2:3Gi", "--fallback-after", "1", "--on-demand", '{"nodeSelector": {"pool": "gpu"}}',
        "--leader-on-demand", '{"nodeSelector": null}',
    )  # fmt: skip
    body = led(launched()._manifest)
    for memory, job_ in zip(("512Mi", "1Gi"), body["spec"]["replicatedJobs"], strict=True):
        own = {"name": "main", "resources": {"limits": {"memory": memory}}}
        job_["template"]["spec"]["template"]["spec"] = {"containers": [own], "nodeSelector": {"pool": "spot"}}
    made = Gang(body, given_by, None)
    made.changes = later_attempts.changes_of(given_by)
    leader, worker = (each["spec"] for each in made.kind.templates(made.body(3, 1, 1, EarlierAttempts(1, 1))))
    assert [each["containers"][0]["resources"]["limits"]["memory"] for each in (leader, worker)] == ["1Gi", "2Gi"]
    assert ("nodeSelector" in leader, worker["nodeSelector"]) == (False, {"pool": "gpu"})
    assert made.differences(EarlierAttempts(1, 1)) == [
        "leader: memory 1Gi instead of 512Mi after running out of it once",
        "worker: memory 2Gi instead of 1Gi after running out of it once",
        "off spot nodes after being interrupted once",
    ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--leader-on-demand", "{}"), "--leader-on-demand goes with --on-demand"),
        (("--fallback-after", "1", "--on-demand", "{}", "--leader-on-demand", "x"), "--leader-on-demand is no JSON"),
        (("--fallback-after", "1", "--on-demand", "{}", "--leader-on-demand", "[]"), "--leader-on-demand must be"),
    ],
)
def test_what_the_leader_cannot_have_instead_is_refused(words: tuple[str, ...], said: str) -> None:
    with pytest.raises(BadOption, match=said):
        later_attempts.changes_of(options(*words))


def test_a_verdict_is_noted_with_its_node_and_one_without_is_read_as_before() -> None:
    body = launched().body(1, 0, 0)
    verdict = Verdict(RETRYABLE, "because", 1, "node-a")
    body["metadata"]["annotations"].update(attempt_object.note_verdict(verdict)["metadata"]["annotations"])
    assert attempt_object.read_verdict(body) == verdict
    for said, expected in (({}, Verdict(RETRYABLE, "b", 1)), ({"node": 3}, None)):
        text = json.dumps({"outcome": RETRYABLE, "because": "b", "code": 1, **said})
        body["metadata"]["annotations"][attempt_object.VERDICT] = text
        assert attempt_object.read_verdict(body) == expected
