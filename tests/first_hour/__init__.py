"""What a new user does first: README, docs/install.md, the tutorial and the guides, line by line."""
