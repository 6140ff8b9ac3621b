"""What a new user does first: the lines of README, of docs/install.md, the tutorial and the guides, as they are printed."""
