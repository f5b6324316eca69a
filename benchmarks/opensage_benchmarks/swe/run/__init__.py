"""The runner: one code path for one task and for many, each task in a process of its own."""
