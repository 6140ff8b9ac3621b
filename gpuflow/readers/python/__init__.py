"""Airflow DAGs and Hera workflows: Python files, which are run only when somebody allows it. `dags` reads them."""

from gpuflow.readers.python.programs import Pythons, read_program
from gpuflow.readers.python.source_text import program_of

__all__ = ["Pythons", "program_of", "read_program"]
