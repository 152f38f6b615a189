"""Ranges of PyTorch's `emit_nvtx`: operator, sequence id and sizes are in one text, different each time.

The texts are ``aten::mm, seq = 7, op_id = 12, sizes = [[2, 3], [3, 4]], input_op_ids = [(9,0)]``; each part after the name
may be absent. The sequence id counts the operators of a thread that autograd records, and the node that later computes the
gradient of one carries the id of that operator: ``MmBackward0, seq = 7, op_id = 40`` on a thread of autograd. So the id ties
forward and backward together.
"""

from __future__ import annotations

import polars as pl

from nsys2prv.vocabulary.event_types import EventType, Role, ValueSet

AUTOGRAD_FORWARD, AUTOGRAD_BACKWARD = "forward", "backward"
AUTOGRAD_SEQUENCE = EventType(9610, "Autograd sequence", Role.ATTRIBUTE, unit="sequence id + 1")
AUTOGRAD_DIRECTION = EventType(
    9611,
    "Autograd direction",
    Role.ATTRIBUTE,
    ValueSet("autograd directions", {AUTOGRAD_FORWARD: 1, AUTOGRAD_BACKWARD: 2}, first=3),
)
AUTOGRAD_OPERATION = EventType(9612, "Autograd operation", Role.ATTRIBUTE, unit="id")
AUTOGRAD_SIZES = EventType(9613, "Autograd sizes", Role.ATTRIBUTE, ValueSet("autograd sizes"))


TYPES = (
    AUTOGRAD_SEQUENCE,
    AUTOGRAD_DIRECTION,
    AUTOGRAD_OPERATION,
    AUTOGRAD_SIZES,
)
"""Attributes that `with_autograd` adds."""

ASSUMPTION = (
    "Names of PyTorch's backward ranges end in Backward and a number, or begin with autograd::engine:: or torch::autograd::, "
    "and have the sequence id of the forward operator; sizes and ids of inputs follow in brackets."
)
"""The real reports hold forward ranges, without sizes."""

# A list may be cut off, where the text was too long for the profiler.
_LIST = r"\[[\d\s,()\[\]-]*"
_TAIL = rf"((?:, (?:(?:stashed )?seq|op_id|sizes|input_op_ids) ?= ?(?:\d+|{_LIST}))+)$"
_SEQUENCE = r"\bseq ?= ?(\d+)"
_OPERATION = r", op_id ?= ?(\d+)"
_SIZES = rf", sizes ?= ?({_LIST}?)(?:, input_op_ids|$)"
# What computes gradients; PyTorch before 1.5 called sequence ids of backward "stashed".
_BACKWARD = r"Backward\d*$|^autograd::engine::|^torch::autograd::"
_STASHED = ", stashed seq"


def name_of(text: pl.Expr) -> pl.Expr:
    """The name of the operator in a text; other texts stay as they are."""
    return text.str.strip_suffix(text.str.extract(_TAIL).fill_null(""))


def with_autograd(ranges: pl.LazyFrame) -> pl.LazyFrame:
    """Ranges (with a column `label`) with the name of the operator as their label, and the attributes `TYPES`."""
    tail, name = pl.col("tail"), pl.col("label")
    sequence = tail.str.extract(_SEQUENCE).cast(pl.Int64, strict=False)
    is_backward = name.str.contains(_BACKWARD) | tail.str.contains(_STASHED, literal=True)
    direction = (
        pl.when(tail.is_not_null() & is_backward)
        .then(pl.lit(AUTOGRAD_BACKWARD))
        .when(sequence.is_not_null())
        .then(pl.lit(AUTOGRAD_FORWARD))
    )
    return (
        ranges.with_columns(tail=name.str.extract(_TAIL))
        .with_columns(label=name.str.strip_suffix(tail.fill_null("")))
        .with_columns(
            (sequence + 1).alias(str(AUTOGRAD_SEQUENCE)),
            direction.alias(str(AUTOGRAD_DIRECTION)),
            tail.str.extract(_OPERATION).cast(pl.Int64, strict=False).alias(str(AUTOGRAD_OPERATION)),
            tail.str.extract(_SIZES).alias(str(AUTOGRAD_SIZES)),
        )
        .drop("tail")
    )
