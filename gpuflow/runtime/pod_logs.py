"""The logs of an object's pods, repeated on our own standard output while they are written."""

from __future__ import annotations

import http.client
import threading

from gpuflow.runtime.api_server import ApiServer, Refused, Unreachable

MOST_PODS = 8
"""How many pods are followed at once: a gang of hundreds writes the same lines hundreds of times."""
_STARTED = ("Running", "Succeeded", "Failed")


class PodLogs:
    """Follows each pod once it runs, every one on a thread of its own."""

    def __init__(self, api: ApiServer, namespace: str, selector: str, named: bool = True) -> None:
        """`named`: each line after the name of its pod."""
        self._named = named
        self._api, self._pods, self._selector = api, f"/api/v1/namespaces/{namespace}/pods", selector
        self._followed: dict[str, threading.Thread] = {}
        self._silent: str | None = None
        self._print = threading.Lock()

    def look(self) -> None:
        """Start to follow what has come since; what may not be read is said once."""
        if self._silent is not None:
            return
        try:
            listed = self._api.get(self._pods, labelSelector=self._selector).get("items", [])
        except Unreachable:
            return
        except Refused as refusal:
            self._silent = f"{refusal}; logs are not repeated here"
            self._say("gpuflow-run", self._silent)
            return
        for pod in listed:
            name = pod["metadata"]["name"]
            if name in self._followed or pod.get("status", {}).get("phase") not in _STARTED:
                continue
            if len(self._followed) == MOST_PODS:
                self._silent = f"more than {MOST_PODS} pods: the logs of the others are not repeated here"
                self._say("gpuflow-run", self._silent)
                return
            container = pod["spec"]["containers"][0]["name"]
            thread = threading.Thread(target=self._follow, args=(name, container), daemon=True)
            self._followed[name] = thread
            thread.start()

    def finish(self, seconds: float) -> None:
        """Let the last lines come."""
        self.look()
        for thread in list(self._followed.values()):
            thread.join(seconds)

    def _follow(self, pod: str, container: str) -> None:
        last: tuple[str, str] | None = None
        while True:
            query = {"container": container, "follow": "true", "timestamps": "true"}
            if last is not None:
                query["sinceTime"] = last[0] + "Z"
            try:
                # A quiet program may write nothing for hours: the read ends with the connection, not with a clock.
                with self._api.stream(f"{self._pods}/{pod}/log", 24 * 3600.0, **query) as answer:
                    for raw in answer:
                        stamp, _, text = raw.decode("utf-8", "replace").rstrip("\n").partition(" ")
                        moment = _moment(stamp)
                        if last is None or moment > last:
                            last = moment
                            self._say(pod if self._named else "", text)
                return
            except Refused as refusal:
                self._say("gpuflow-run", f"log of {pod}: {refusal}")
                return
            except (Unreachable, OSError, http.client.HTTPException):
                threading.Event().wait(2.0)

    def _say(self, who: str, text: str) -> None:
        with self._print:
            print(f"[{who}] {text}" if who else text, flush=True)


def _moment(stamp: str) -> tuple[str, str]:
    """A time with nine digits of a second, so that two of them compare: Go leaves zeros at the end out."""
    whole, _, part = stamp.rstrip("Z").partition(".")
    return whole, part.ljust(9, "0")
