"""One action over many nodes: listed, agreed to, tried on a few, widened while it goes well, halted when it doesn't."""
