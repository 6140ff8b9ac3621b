"""Airflow DAGs and Hera workflows: Python files, which are run only when somebody allows it."""

from gpuflow.readers.python.dags import demand_of
from gpuflow.readers.python.programs import Pythons, is_program, read_program
from gpuflow.readers.python.source_text import program_of

__all__ = ["Pythons", "demand_of", "is_program", "program_of", "read_program"]
