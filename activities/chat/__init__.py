"""Chat systems, each in modules of its own."""
