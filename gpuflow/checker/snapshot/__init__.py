"""What a snapshot of a cluster must hold before it is checked, and what it does not show."""
