"""Whether the diagnosis of judges is right: reference data, recovery, cells, invariance, peers."""
