"""Kubernetes behind the cluster port, by the official client's connection."""
