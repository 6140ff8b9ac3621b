"""Where checkpoints, artifacts and records are kept: folders, S3, other object stores; how bytes get there and back."""
