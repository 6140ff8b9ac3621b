"""An object as a key."""

from gpuflow.core.caching import IdentityKey


def test_equal_objects_are_different_keys() -> None:
    one, other = [1], [1]
    known = {IdentityKey(one): "one"}
    assert known[IdentityKey(one)] == "one"
    assert IdentityKey(other) not in known and IdentityKey(one) != one
