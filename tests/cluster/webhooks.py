"""Webhooks of programs that run beside the private cluster: called by address, with a certificate made here."""

from __future__ import annotations

import base64
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Hooks:
    """Where one program's webhooks are, and the text that the API server needs to trust them."""

    program: str
    port: int
    authority: str

    @classmethod
    def certified(cls, program: str, port: int, folder: Path) -> Hooks:
        """With a self-signed certificate for the loopback address, written into `folder`."""
        options = {
            "-newkey": "rsa:2048",
            "-days": "2",
            "-subj": f"/CN={program}",
            "-addext": "subjectAltName=IP:127.0.0.1",
            "-keyout": str(folder / "tls.key"),
            "-out": str(folder / "tls.crt"),
        }
        words = [word for pair in options.items() for word in pair]
        subprocess.run(["openssl", "req", "-x509", "-nodes", *words], check=True, capture_output=True)
        return cls(program, port, base64.b64encode((folder / "tls.crt").read_bytes()).decode())

    def client(self, path: str) -> dict[str, str]:
        return {"url": f"https://127.0.0.1:{self.port}{path}", "caBundle": self.authority}

    def addressed(self, configuration: dict[str, Any], own: str, outside: Sequence[str]) -> dict[str, Any]:
        """The configuration under the program's name; other than for its `own` group not for namespaces `outside`."""
        configuration["metadata"]["name"] = f"{self.program}-{configuration['metadata']['name']}"
        for hook in configuration["webhooks"]:
            hook["clientConfig"] = self.client(hook["clientConfig"]["service"]["path"])
            if own not in groups(hook):
                names = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": list(outside)}
                hook["namespaceSelector"] = {"matchExpressions": [names]}
        return configuration


def groups(hook: Mapping[str, Any]) -> set[str]:
    """The API groups whose objects a webhook is asked about."""
    return {group for rule in hook["rules"] for group in rule["apiGroups"]}
