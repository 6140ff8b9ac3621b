"""What a step reads and leaves: inputs, outputs, artifacts."""
