"""The findings about the checker, each with the test that holds it."""
