"""One file a kit: its `PACKAGE`, and `run(turns, add)`, in which the kit calls a tool `add` once a turn.

Each file is run by the Python of the kit's own virtual environment (see `child.py`); `run` returns the kit's answer.
"""
