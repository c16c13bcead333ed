"""Cases: a matter with a provider or a ticket system, from its opening to its proof."""
