"""Where the graph is kept: one protocol, several stores, one contract suite."""
