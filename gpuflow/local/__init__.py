"""A whole pipeline on this machine: no engine, no cluster."""
