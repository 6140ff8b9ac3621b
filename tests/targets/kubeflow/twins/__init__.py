"""Pipelines written twice: as gpuflow YAML, and by hand with kfp.dsl and kfp.kubernetes."""
