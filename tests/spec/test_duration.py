"""Durations as people write them."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuflow.spec.duration import LONGEST, Duration


@given(st.integers(0, LONGEST))
def test_a_duration_is_read_back_from_what_it_prints(seconds: int) -> None:
    duration = Duration(seconds)
    assert Duration(str(duration)) == duration
    assert Duration(str(duration)).seconds == seconds


@given(st.integers(0, 99), st.integers(0, 99), st.integers(0, 99), st.integers(0, 999))
def test_the_parts_of_a_duration_add_up(days: int, hours: int, minutes: int, seconds: int) -> None:
    assert (
        Duration(f"{days}d{hours}h{minutes}m{seconds}s").seconds == ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    )


@given(st.integers(0, 10**6), st.integers(0, 10**6))
def test_durations_are_ordered_by_length_and_equal_across_spellings(one: int, other: int) -> None:
    assert (Duration(one) < Duration(other)) == (one < other)
    assert (Duration(f"{one}s") == Duration(other)) == (one == other)
    assert hash(Duration(f"{one}s")) == hash(Duration(one))


@pytest.mark.parametrize(
    ("text", "shown"), [("90m", "1h30m"), ("48h", "2d"), ("0s", "0s"), (" 5m ", "5m"), ("75s", "1m15s")]
)
def test_the_shortest_spelling_is_printed(text: str, shown: str) -> None:
    assert str(Duration(text)) == shown


@pytest.mark.parametrize(
    "value", ["", "5", "5 m", "m5", "1.5h", "-5s", "5s3m", "1w", -1, 1.5, True, None, "99999d", 10**12]
)
def test_other_things_are_not_durations(value: object) -> None:
    with pytest.raises(ValueError, match="duration"):
        Duration(value)  # type: ignore[arg-type]  # wrong on purpose


def test_a_duration_cannot_be_changed_and_survives_pickling() -> None:
    duration = Duration("10m")
    with pytest.raises(AttributeError):
        duration.seconds = 5
    assert pickle.loads(pickle.dumps(duration)) == duration
    assert repr(duration) == "Duration('10m')"


@given(st.text(max_size=20))
def test_any_text_is_a_duration_or_a_value_error(text: str) -> None:
    def seconds() -> int | str:
        try:
            return Duration(text).seconds
        except ValueError as refusal:
            return str(refusal)

    found = seconds()
    assert found >= 0 if isinstance(found, int) else "duration" in found
