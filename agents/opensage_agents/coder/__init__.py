"""The agent `coder`: mends and extends code in a repository."""
