"""What Kubernetes itself says: labels and selectors, and the API server's admission of one pod."""
