"""What a campaign is."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Protocol

from .commands import Commands


class Campaign(Protocol):
    """One kind of damage. Objects are made once for each thread that tries inputs, and used by it alone.

    Attributes
    ----------
    name
        Lower case, with dashes: it names the campaign on the command line and in docs/trust.md.
    description
        What is damaged, and how, in a line.
    """

    name: str
    description: str

    def try_one(self, chance: random.Random, folder: Path, commands: Commands) -> str | None:
        """Make one input in an empty folder, use it, and tell what is wrong, or None.

        All that is random is up to `chance`, so that the same seed makes the same input. What stays in the folder is kept
        when something is wrong.
        """
        ...
