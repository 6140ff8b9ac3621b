"""What Kubernetes itself says: labels and selectors, the kubelet's expansion of text, the admission of one pod."""
