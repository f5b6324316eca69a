"""Toolkits: folders of tools that run in the sandbox, shipped, of the user, or made by agents at run time."""
