"""Machines that objects of a Kubernetes API own: what is done to the object, its controller does to the machine."""
