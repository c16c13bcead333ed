"""What the engine costs and how fast it is: `make bench`. Each module prints a table, and one line of JSON last."""
