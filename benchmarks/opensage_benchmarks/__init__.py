"""Benchmarks: task sources, runners, graders, peer comparisons."""
