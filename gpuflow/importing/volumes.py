"""The volumes of a pod by the path that they are mounted at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from gpuflow.importing.listing import Listing, Place
from gpuflow.importing.plain import maps


class PodVolumes:
    """Volumes that the spec has words for become entries of `volumes`; the others go into the patch as they are."""

    def __init__(
        self,
        volumes: Any,
        containers: Iterable[Mapping[str, Any]],
        claims: Mapping[str, str],
        listing: Listing,
        place: Place,
        value: Callable[..., Any],
    ) -> None:
        self.volumes = {str(each.get("name")): each for each in volumes or () if isinstance(each, Mapping)}
        self.claims, self.listing, self.place, self.value = claims, listing, place, value
        self._raw: dict[str, Any] = {}
        self._mounted = Counter(
            str(mount.get("name")) for each in containers for mount in each.get("volumeMounts") or ()
        )

    def mounts(self, container: Mapping[str, Any]) -> tuple[dict[str, Any], list[Any]]:
        """Entries of `volumes` by path, and mounts for the patch."""
        words: dict[str, Any] = {}
        raw: list[Any] = []
        for each in maps(container.get("volumeMounts")):
            mount = self.value(each, each)
            name, path = str(mount.get("name")), str(mount.get("mountPath"))
            source = self._source(name, each)
            if not isinstance(mount.get("mountPath"), str):
                self.listing.cannot(f"mount of {name}", "it names no path", self.place.of(each))
                continue
            if source is None:
                continue
            said = {key: value for key, value in mount.items() if value not in (None, False, "")}
            extra = set(said) - {"name", "mountPath", "readOnly", "subPath"}
            entry = _words(source) if not extra and path.startswith("/") and ":" not in path else None
            # Scratch space that containers hand to each other at different paths is one volume by its name alone.
            if entry is None or path in words or ("emptyDir" in source and self._mounted[name] > 1):
                self._raw[name] = {"name": name, **source}
                raw.append(mount)
                continue
            entry |= {"read_only": True} if said.get("readOnly") else {}
            entry |= {"sub_path": said["subPath"]} if "subPath" in said else {}
            words[path] = entry
        return words, raw

    def _source(self, name: str, mount: Any) -> dict[str, Any] | None:
        if name in self.claims:
            return {"new_claim": self.claims[name]}
        volume = self.volumes.get(name)
        if volume is None:
            where = self.place.of(mount, "name")
            self.listing.cannot(f"volume {name}", "no volume of that name is declared", where, "declare it in volumes")
            return None
        value = self.value(volume, volume)
        return {key: item for key, item in value.items() if key != "name"}

    def raw(self) -> list[Any]:
        """Volumes for the patch; also those that no container mounts, which are lost otherwise."""
        return list(self._raw.values())


def _words(source: Mapping[str, Any]) -> dict[str, Any] | None:
    """A volume's source in the words of the spec; None when they do not say all of it."""
    if len(source) != 1:
        return None
    ((kind, value),) = source.items()
    if kind == "new_claim":
        return {"new_claim": value}
    if not isinstance(value, Mapping):
        return None
    given = {key: item for key, item in value.items() if item not in (None, False)}
    if kind == "persistentVolumeClaim" and set(given) == {"claimName"}:
        return {"claim": given["claimName"]}
    sized = kind == "emptyDir" and set(given) <= {"sizeLimit", "medium"} and "sizeLimit" in given
    if sized and given.get("medium") in (None, "", "Memory"):
        return {"memory" if given.get("medium") else "empty_dir": str(given["sizeLimit"])}
    if kind == "hostPath" and set(given) <= {"path", "type"}:
        return {"host_path": given if given.get("type") else given["path"]}
    if kind == "nfs" and set(given) == {"server", "path"}:
        return {"nfs": given}
    name = {"configMap": "name", "secret": "secretName"}.get(kind)
    if name and set(given) <= {name, "items", "optional", "defaultMode"} and name in given:
        return _files(kind, given, name)
    return None


def _files(kind: str, given: Mapping[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = {"config_map" if kind == "configMap" else "secret": given[name]}
    if given.get("items"):
        found["items"] = {
            each["key"]: {"path": each["path"], "mode": f"0{each['mode']:o}"} if "mode" in each else each["path"]
            for each in given["items"]
        }
    if "defaultMode" in given:
        found["default_mode"] = f"0{given['defaultMode']:o}"
    if given.get("optional"):
        found["optional"] = True
    return found
