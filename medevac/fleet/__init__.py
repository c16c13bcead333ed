"""Node identity and topology, and the guard that keeps the sum of disruptions inside its budgets."""
