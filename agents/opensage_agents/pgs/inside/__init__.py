"""What runs in the sandboxes: the candidate's process, and apart from it the one that draws, checks and shrinks.

Standard library only, but for Hypothesis in `driver`; the files are copied there, so they import nothing of the kit.
"""
