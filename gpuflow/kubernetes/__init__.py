"""What Kubernetes says: labels, requests and limits, expansion of text, patches, the admission of one pod."""
