"""What sub-agents, toolkits and ensembles add: the same tasks with and without them."""
