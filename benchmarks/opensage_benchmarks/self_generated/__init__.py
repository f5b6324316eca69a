"""A small local model makes a toolkit and an agent, and the agent calls the toolkit."""
