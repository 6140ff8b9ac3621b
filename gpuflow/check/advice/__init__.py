"""The ways out: what a person can do about an answer of the cluster, and what will hurt although it is admitted.

One subject per module. Modules that only word a way out (`waiting`, `refusals`, `queues`, `gpus`) are asked by those
who judge; `whole` collects the findings that stand on their own.
"""
