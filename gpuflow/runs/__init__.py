"""Runs on engines: start one, follow it, read its logs, stop it, retry it. One client for each engine, one tree for all."""
