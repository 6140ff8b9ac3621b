"""What every other package may import: findings and their codes, text that is printed, files, YAML, dates, caches."""
