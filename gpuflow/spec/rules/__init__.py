"""What must hold of a pipeline beyond the shape of its models, and warnings about it."""
