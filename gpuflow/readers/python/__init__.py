"""Airflow DAGs and Hera workflows: Python files, which are run only when somebody allows it. `dags` reads them."""

from gpuflow.readers.python.programs import Pythons, program_of, read_program

__all__ = ["Pythons", "program_of", "read_program"]
