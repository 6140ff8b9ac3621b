"""The oracles against a running cluster: do the engines' own programs answer as their code does in process?"""
