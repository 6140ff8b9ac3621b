"""A whole pipeline before queues and nodes: everything that may be alive at once, against all the room there is."""
