"""What campaigns that damage reports do with them."""

from __future__ import annotations

_CHANGES = ("--ideal-network", "--no-late-ranks", "--no-launch-cost", "--data-loading", "0.5")
REPORT_COMMANDS: tuple[tuple[str, ...], ...] = (
    *[("inspect",), ("translate", "-o", "OUT"), ("efficiency",)] * 2,
    ("translate", "-o", "OUT", "--keep-going"),
    ("translate", "-o", "OUT", "--workers", "2"),
    ("translate", "-o", "OUT", "--fold-streams"),
    ("translate", "-o", "OUT", "--critical-path"),
    ("efficiency", "--keep-going"),
    ("efficiency", "--per-iteration", "step", "--regions", "*", "--window", "500ns:", "--talp", "OUT.talp.json"),
    ("efficiency", "-o", "OUT.html", "--json-file", "OUT.json", "--csv", "OUT.csv"),
    ("whatif", *_CHANGES),
    ("whatif", *_CHANGES, "--scale", "*=1e6", "--json-file", "OUT.json"),
)
"""Commands whose last argument is a report; what they write begins with `OUT.`."""
