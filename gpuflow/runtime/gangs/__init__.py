"""Gangs, as their launcher sees them: the object of each attempt, how it ends, and the next one."""
