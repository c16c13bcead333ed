"""The guard as a transaction: its state in rows, its logic in `medevac.fleet.guard`."""
