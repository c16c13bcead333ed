"""What is wrong with a node: the catalogue of fault codes, and the set of faults open on one node."""
