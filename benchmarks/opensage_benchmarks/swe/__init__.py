"""SWE-style benchmark runs: task sources, the runner, the grader and what is made of their results."""
