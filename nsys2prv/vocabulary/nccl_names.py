"""Names of NCCL: operations, payload fields, calls, and labels of its communicators."""

from collections.abc import Iterable, Mapping

import polars as pl

from nsys2prv.vocabulary.wording import ranges

REDUCTIONS = ("Sum", "Prod", "Max", "Min", "Avg")
"""Names of the reduction operations, in the order of NCCL's numbers (0, 1, ...)."""

SIZE, REDUCTION, ROOT, COMMUNICATOR, RANKS, RANK, PEER, SEQUENCE = FIELDS = (
    "Message size [bytes]",
    "Reduction operation",
    "Root",
    "NCCL communicator ID",
    "No. of ranks",
    "Rank",
    "Peer rank",
    "Sequence number",
)
"""What NCCL calls the fields of its payloads that regions have as attributes."""
CALL, COUNT, DATA_TYPE = "Call ID", "No. of elements", "Data type"
"""Further fields: what identifies a call, in all ranks that take part in a collective; and the size in elements."""

_OF_NSYS = {
    "commHash": COMMUNICATOR,
    "nRanks": RANKS,
    "commRank": RANK,
    "rank": RANK,
    "root": ROOT,
    "peer": PEER,
    "seqNumber": SEQUENCE,
    "apiId": CALL,
    "count": COUNT,
    "dataType": DATA_TYPE,
}
"""The same fields as nsys calls them, which traces NCCL itself from 2025.6 on (`--trace=nccl`, NCCL 2.28)."""

_NAMES_OF_SIZES = {
    1: ("int8", "char", "uint8", "float8e4m3", "float8e5m2"),
    2: ("float16", "half", "bfloat16"),
    4: ("int32", "int", "uint32", "float32", "float"),
    8: ("int64", "uint64", "float64", "double"),
}

GROUP_START, GROUP_END = "ncclGroupStart", "ncclGroupEnd"
AROUND_CALLS = (GROUP_START, GROUP_END, "API Group", "GroupLaunch", "GroupRuntime", "KernelLaunch")
"""Regions around calls, which are none themselves."""
SEND, RECEIVE = "ncclSend", "ncclRecv"

_SHORTEST_MARK = 4
_UNKNOWN = "?"

COMMUNICATOR_FIELDS = frozenset({COMMUNICATOR, *(name for name, field in _OF_NSYS.items() if field == COMMUNICATOR)})
"""Names of the field that identifies the communicator: every payload of NCCL has one of them."""


def field_name(name: pl.Expr) -> pl.Expr:
    """The name of a field of a payload of NCCL, as NCCL calls it."""
    return name.replace(_OF_NSYS)


def element_bytes(data_type: pl.Expr) -> pl.Expr:
    """Bytes of an element of a data type, by its name in NCCL (ncclFloat32, ...); null where it is not known."""
    sizes = {name: size for size, names in _NAMES_OF_SIZES.items() for name in names}
    plain = data_type.str.to_lowercase().str.strip_prefix("nccl")
    return plain.replace_strict(sizes, default=None, return_dtype=pl.Int64)


def communicator_key(identifier: int, size: int | None, rank: int | None) -> str:
    """What one process knows of a communicator, as a text: the labels come from those of all processes together.

    Parameters
    ----------
    identifier
        NCCL's 64-bit id of it, the same in all its processes.
    size
        Number of its ranks, None when the process does not report it.
    rank
        Rank of the process in the program, None when it is not known.
    """
    facts = (_UNKNOWN if number is None else str(number) for number in (size, rank))
    return " ".join((f"{identifier & 0xFFFF_FFFF_FFFF_FFFF:016x}", *facts))


def rank_of_key(key: str) -> int | None:
    """Rank of the process in the program, of what it knows of a communicator.

    >>> rank_of_key(communicator_key(0x1A2B, 2, 4)), rank_of_key(communicator_key(0x1A2B, 2, None))
    (4, None)
    """
    rank = key.rpartition(" ")[2]
    return None if rank == _UNKNOWN else int(rank)


def communicator_labels(keys: Iterable[str]) -> Mapping[str, str]:
    """Labels of communicators by what each process knows of them.

    Ranks are listed when all of them are known. Marks are the last digits of the ids, as many as make them distinct.

    >>> keys = [communicator_key(0x1A2B, 2, 4), communicator_key(0x1A2B, None, 5), communicator_key(0x77, None, 4)]
    >>> sorted(set(communicator_labels(keys).values()))
    ['NCCL communicator (#0077)', 'NCCL communicator of 2 ranks: 4-5 (#1a2b)']
    """
    split = {key: key.split(" ") for key in keys}
    identifiers = sorted({identifier for identifier, _, _ in split.values()})
    sizes: dict[str, int] = {}
    ranks: dict[str, set[int]] = {identifier: set() for identifier in identifiers}
    for identifier, known_size, known_rank in split.values():
        if known_size != _UNKNOWN:
            sizes[identifier] = max(int(known_size), sizes.get(identifier, 0))
        if known_rank != _UNKNOWN:
            ranks[identifier].add(int(known_rank))
    lengths = range(_SHORTEST_MARK, 16)
    length = next((size for size in lengths if len({name[-size:] for name in identifiers}) == len(identifiers)), 16)
    labels = {}
    for identifier in identifiers:
        size = sizes.get(identifier)
        of_size = "" if size is None else f" of {size} rank{'s' if size != 1 else ''}"
        members = f": {ranges(ranks[identifier])}" if size is not None and len(ranks[identifier]) == size else ""
        labels[identifier] = f"NCCL communicator{of_size}{members} (#{identifier[-length:]})"
    return {key: labels[identifier] for key, (identifier, _, _) in split.items()}
