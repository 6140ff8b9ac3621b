"""Gangs, as their ranks see them: connections, one outcome, parts of checkpoints, mpirun."""
