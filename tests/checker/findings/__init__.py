"""The findings on the checker, by their letters: one file for each group of scenes, and the scene's label in the test."""
