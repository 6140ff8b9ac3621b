"""The supervisor: its command line, one attempt of a command, and the API server's client."""
