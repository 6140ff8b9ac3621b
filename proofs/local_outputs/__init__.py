"""A table of pipelines on this machine and on the live engines: are their artifacts the same bytes?"""
