"""OpenSage: agents that build their own sub-agents and toolkits, on one small loop, in sandboxes.

Importing this package does nothing but define names: every heavy module is loaded when first used.
"""

from __future__ import annotations

__version__ = "0.1.0"
