"""Parts that many steps have alike are one object, and nothing else changes by that."""

import pytest

from gpuflow.core.errors import GpuflowError
from gpuflow.spec.loading import loads
from gpuflow.spec.model import EMPTY_MAP, MOST_ALIKE
from gpuflow.spec.step import Step

HEAD = "apiVersion: gpuflow/v1\nkind: Pipeline\nname: p\nsteps:\n"


def _steps(*more: str) -> list[Step]:
    text = "".join(f"  s{number}: {{image: i, command: [x], {each}}}\n" for number, each in enumerate(more))
    return list(loads(HEAD + text).steps.values())


@pytest.mark.parametrize("said", ["gpu: l4", "memory: 4Gi", "cpu: 2", "retry: {failures: 2, backoff: {start: 30s}}"])
def test_equal_words_are_one_object(said: str) -> None:
    one, other = _steps(said, said)
    field = said.partition(":")[0]
    assert getattr(one, field) is getattr(other, field)


def test_words_that_only_look_alike_stay_apart() -> None:
    number, null, whole = _steps("retry: {failures: 1}", "retry: {failures: 1, backoff: null}", "retry: 1")
    assert (number.retry, null.retry) != (whole.retry, whole.retry)
    assert number.retry == null.retry
    long, short = _steps("cpu: 1.50", "cpu: 1.5")
    assert long.cpu is not short.cpu and long.cpu == short.cpu


def test_a_wrong_part_is_refused_each_time_at_its_own_place() -> None:
    for _ in range(2):
        with pytest.raises(GpuflowError) as refusal:
            _steps("gpu: l4", "gpu: 7 cards", "gpu: 7 cards")
        assert [(each.code, each.where.line) for each in refusal.value.findings] == [("GF152", 6), ("GF152", 7)]


def test_true_is_not_the_number_one() -> None:
    _steps("gpu: 1")
    with pytest.raises(GpuflowError):
        _steps("gpu: true")


def test_more_kinds_than_are_kept() -> None:
    numbers = range(1, MOST_ALIKE + 10)
    made = _steps(*(f"memory: {number}Mi" for number in numbers))
    assert [str(step.memory.request) for step in made if step.memory is not None][:3] == ["1Mi", "2Mi", "3Mi"]
    assert len(made) == len(numbers)


def test_the_default_of_a_map_stays_empty() -> None:
    step = _steps("gpu: l4")[0]
    assert step.env == {} and step.env is EMPTY_MAP
    with pytest.raises(TypeError):
        step.env["A"] = "a"
    with pytest.raises(TypeError):
        step.outputs.update(a=1)
    assert step.model_copy(deep=True).env == {}
