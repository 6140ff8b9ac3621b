"""Checkpoints: kept and restored by the supervisor, saved by the training program."""
