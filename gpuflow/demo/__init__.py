"""The example that `gpuflow demo` tells its story on: a nightly pipeline, its site, and a small cluster."""
