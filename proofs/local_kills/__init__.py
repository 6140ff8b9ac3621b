"""Random pipelines run on this machine and killed at random moments: does `--resume` end as if nothing had happened?"""
