"""Selectors of devices: a part of CEL, evaluated as Kubernetes does. Other text is not judged."""
