"""What goes into the model of a cluster, and what bad input becomes."""
