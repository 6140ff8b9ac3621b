"""A whole pipeline before queues and nodes: everything that may run at the same time, against all the room."""
