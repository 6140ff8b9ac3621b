"""An object as a key."""

from gpuflow.same import Same


def test_equal_objects_are_different_keys() -> None:
    one, other = [1], [1]
    known = {Same(one): "one"}
    assert known[Same(one)] == "one"
    assert Same(other) not in known and Same(one) != one
