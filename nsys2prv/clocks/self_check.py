"""A check of the time axis by what was placed on it: ends of collectives and both ends of messages."""

from __future__ import annotations

from dataclasses import dataclass

INSIDE_HOST, MESSAGE, BETWEEN_HOSTS = "inside host", "message", "between hosts"


@dataclass(frozen=True)
class Disagreement:
    """What cannot be as it was placed, of one host or of two.

    Attributes
    ----------
    what
        INSIDE_HOST: ranks of a host end a collective more than 1 ms apart; MESSAGE: a message arrives before it was sent;
        BETWEEN_HOSTS: a rank ends a collective before one of another host has begun it, by more than both intervals allow.
    hosts
        Names of the clocks: one, or that of the sender (the rank that ended first) and that of the receiver.
    size
        The largest, ns.
    count
        How often.
    """

    what: str
    hosts: tuple[str, ...]
    size: float
    count: int
