"""Safety-CoT: reasoning that is safe, helpful and faithful on sensitive but benign subjects (a reconstruction).

Importing this package loads none of its modules: `opensage --help` reads its command.
"""

from __future__ import annotations
