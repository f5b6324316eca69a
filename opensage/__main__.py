"""`python -m opensage` is the command too."""

from __future__ import annotations

import sys

from opensage.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
