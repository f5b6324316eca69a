"""Code tools: an index of a repository in many languages, its tests, a debugger, coverage, a fuzzer, git."""
