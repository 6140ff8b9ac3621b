"""Tests of gpuflow."""
