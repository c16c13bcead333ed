"""Health events: one normal form, and one parser module for each sender."""
