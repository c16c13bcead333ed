"""A seeded world of nodes, jobs, faults and repair clocks behind the same ports as the real systems."""
