"""The way out of each finding."""
