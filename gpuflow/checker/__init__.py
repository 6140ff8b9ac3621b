"""Whether the cluster will admit a pipeline, and why not: `checker.run.check`."""
