"""What runs inside a sandbox: only the standard library, Python 3.9 or newer; nothing else of the kit is imported.

`stage.py` unpacks a toolkit's files into a folder of their own below the temporary folder, with this package beside
them. After that `entry.py` runs there: one request as JSON on standard input, one answer as JSON on standard output.
The process's own standard output is moved away before any code of the toolkit runs, so whatever that prints goes to
standard error.

Modules are imported late: a call through a worker must not pay for what only the worker needs.
"""
