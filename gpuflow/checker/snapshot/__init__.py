"""What a snapshot of a cluster must hold before anything is judged, and what it does not show."""
