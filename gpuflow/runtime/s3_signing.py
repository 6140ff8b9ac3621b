"""AWS Signature Version 4 for requests to S3, with nothing but the standard library."""

from __future__ import annotations

import hashlib
import hmac
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

UNSIGNED = "UNSIGNED-PAYLOAD"
EMPTY = hashlib.sha256(b"").hexdigest()


class Signer:
    """Signs requests for one region with one set of credentials. The day's key is made once."""

    def __init__(self, access_key: str, secret_key: str, token: str | None, region: str) -> None:
        self.access_key, self.token, self.region = access_key, token, region
        self._secret = secret_key
        self._day, self._key = "", b""
        self._second, self._now = -1, ""

    def plain(self) -> list[str | None]:
        """What another process needs to sign as this one does. It is secret."""
        return [self.access_key, self._secret, self.token, self.region]

    def now(self) -> str:
        """The time as a request says it. Made anew once a second."""
        second = int(time.time())
        if second != self._second:
            self._now, self._second = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(second)), second
        return self._now

    def authorization(self, method: str, path: str, query: str, headers: Mapping[str, str]) -> str:
        """The value of `Authorization`. All `headers` are signed: their names in lower case, values without margins.

        Path and query are percent-encoded, the query's fields are sorted.
        """
        when, payload = headers["x-amz-date"], headers["x-amz-content-sha256"]
        names = sorted(headers)
        lines = "".join([f"{name}:{headers[name]}\n" for name in names])
        signed = ";".join(names)
        request = hashlib.sha256(f"{method}\n{path}\n{query}\n{lines}\n{signed}\n{payload}".encode()).hexdigest()
        scope = f"{when[:8]}/{self.region}/s3/aws4_request"
        text = f"AWS4-HMAC-SHA256\n{when}\n{scope}\n{request}"
        signature = hmac.new(self._of(when[:8]), text.encode(), hashlib.sha256).hexdigest()
        return f"AWS4-HMAC-SHA256 Credential={self.access_key}/{scope}, SignedHeaders={signed}, Signature={signature}"

    def _of(self, day: str) -> bytes:
        if day != self._day:
            key = f"AWS4{self._secret}".encode()
            for word in (day, self.region, "s3", "aws4_request"):
                key = hmac.new(key, word.encode(), hashlib.sha256).digest()
            self._key, self._day = key, day  # in this order: other threads read them in the other one
        return self._key if day == self._day else self._of(day)
