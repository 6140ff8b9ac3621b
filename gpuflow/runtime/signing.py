"""Signatures of the records in a store: HMAC-SHA256 with a key that the store's other writers do not have.

The key file has one key per line. The first one signs, all of them verify: so that a key can be replaced while runs
go on. A signature covers the record's hash and the place where the record lies, so that what was signed for one run,
number or name is worth nothing under another.
"""

from __future__ import annotations

import os
import stat

from gpuflow.runtime import secret_files
from gpuflow.runtime.options import BadOption

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SHORTEST = 16
"""Bytes of a key; fewer can be guessed."""
_LARGEST = 1 << 16
_SCHEME = "hmac-sha256:"


class Keys:
    """The keys of one key file."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        self._keys = tuple(keys)

    def with_secret(self, secret: bytes) -> Keys:
        """Keys that nobody has who does not have the secret too."""
        return Keys([secret + b"\n" + key for key in self._keys])

    def sign(self, digest: str, place: str) -> str:
        """The signature of a record with this hash at this place."""
        return _signature(self._keys[0], digest, place)

    def verify(self, signature: object, digest: str, place: str) -> bool:
        """Whether one of the keys has signed it."""
        import hmac

        if not isinstance(signature, str) or not signature.isascii():
            return False
        return any(hmac.compare_digest(signature, _signature(key, digest, place)) for key in self._keys)


def read_keys(path: str | None, say: Callable[[str], None] = lambda _: None) -> Keys | None:
    """The keys in a file; None when no file is named. BadOption when it cannot be used."""
    if path is None:
        return None
    try:
        # Not to wait for the writer of a pipe.
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode):
                raise BadOption(f"--key-file: {path} is no file")
            secret_files.add_key(status)
            data = os.read(handle, _LARGEST + 1)
        finally:
            os.close(handle)
    except OSError as refusal:
        raise BadOption(f"--key-file: {path} cannot be read: {refusal.strerror}") from None
    if len(data) > _LARGEST:
        raise BadOption(f"--key-file: {path} is larger than {_LARGEST} bytes; it should hold one key per line")
    keys = [line.strip() for line in data.splitlines() if line.strip()]
    if not keys:
        raise BadOption(f"--key-file: {path} is empty; make a key with: openssl rand -hex 32")
    for number, key in enumerate(keys, 1):
        if key.startswith(b"#"):
            # Whoever can guess a remark could sign with it.
            raise BadOption(f"--key-file: line {number} in {path} looks like a remark; every line is a key: remove it")
        if len(key) < SHORTEST:
            raise BadOption(
                f"--key-file: key {number} in {path} has {len(key)} bytes, and needs at least {SHORTEST}; "
                "make one with: openssl rand -hex 32"
            )
    if status.st_mode & stat.S_IROTH:
        say(f"{path} may be read by every user of this machine; a mode of 0400 or 0440 is enough")
    return Keys(keys)


def _signature(key: bytes, digest: str, place: str) -> str:
    import hmac

    text = f"gpuflow store record\n{place}\n{digest}".encode("utf-8", "surrogatepass")
    return _SCHEME + hmac.new(key, text, "sha256").hexdigest()
