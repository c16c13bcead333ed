"""The policy file and what follows from it: matching, ladders, and `plan()` with every reason."""
