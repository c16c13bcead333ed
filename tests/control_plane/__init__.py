"""A real Kubernetes control plane on loopback ports: built once from pinned Go modules, or found on this machine."""
