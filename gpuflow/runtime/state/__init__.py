"""The state of a run: the records of its attempts, who owns it, and who works in its checkpoint directory."""
