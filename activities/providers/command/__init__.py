"""Machines of any provider, by the installation's own programs: one for each verb."""
