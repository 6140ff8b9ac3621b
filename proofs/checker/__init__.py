"""A judge of whole runs: every order of small worlds, with the engines' own code. It knows nothing of the checker."""
