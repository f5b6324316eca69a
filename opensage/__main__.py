"""`python -m opensage` is the command too."""

from __future__ import annotations

import os
import sys


def _main() -> int:
    # `python -m` looks for modules in the current folder first. That is the agent's workspace, where a file named like
    # a library would be run outside the sandbox.
    if not sys.flags.safe_path and sys.path[:1] in ([""], [os.getcwd()]):
        del sys.path[0]
    from opensage.cli.main import main

    return main()


if __name__ == "__main__":
    sys.exit(_main())
