"""The findings on the checker, by their letters; each test is called after its scene."""
