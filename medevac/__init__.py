"""What is known and what is decided: pure, typed, no I/O, no clock but the one passed in."""
