"""The ledger's database: what was heard, decided, done and said, and the rows that make effects once-only."""
