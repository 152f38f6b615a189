"""Names of MPI calls: Extrae's numbers, the event type each belongs to, and the state a rank is in meanwhile.

The numbers are those of Extrae's traces, so that views made for them work. A call outside the list gets a number above it."""

from __future__ import annotations

import enum
from collections.abc import Iterable

import polars as pl

from nsys2prv.vocabulary.name_rules import first_match

_NAMES_BY_NUMBER = """
    Send Recv Isend Irecv Wait Waitall Bcast Barrier Reduce Allreduce Alltoall Alltoallv Gather Gatherv Scatter
    Scatterv Allgather Allgatherv Comm_rank Comm_size Comm_create Comm_dup Comm_split Comm_group Comm_free
    Comm_remote_group Comm_remote_size Comm_test_inter Comm_compare Scan Init Finalize Bsend Ssend Rsend Ibsend
    Issend Irsend Test Cancel Sendrecv Sendrecv_replace Cart_create Cart_shift Cart_coords Cart_get Cart_map
    Cart_rank Cart_sub Cartdim_get Dims_create Graph_get Graph_map Graph_create Graph_neighbors Graphdims_get
    Graph_neighbors_count Topo_test Waitany Waitsome Probe Iprobe Win_create Win_free Put Get Accumulate Win_fence
    Win_start Win_complete Win_post Win_wait Win_test Win_lock Win_unlock Pack Unpack Op_create Op_free
    Reduce_scatter Attr_delete Attr_get Attr_put Group_difference Group_excl Group_free Group_incl
    Group_intersection Group_rank Group_range_excl Group_range_incl Group_size Group_translate_ranks Group_union
    Group_compare Intercomm_create Intercomm_merge Keyval_free Keyval_create Abort Error_class Errhandler_create
    Errhandler_free Errhandler_get Error_string Errhandler_set Get_processor_name Initialized Wtick Wtime Address
    Bsend_init Buffer_attach Buffer_detach Request_free Recv_init Send_init Get_count Get_elements Pack_size
    Rsend_init Ssend_init Start Startall Testall Testany Test_cancelled Testsome Type_commit Type_contiguous
    Type_extent Type_free Type_hindexed Type_hvector Type_indexed Type_lb Type_size Type_struct Type_ub Type_vector
    File_open File_close File_read File_read_all File_write File_write_all File_read_at File_read_at_all
    File_write_at File_write_at_all Comm_spawn Comm_spawn_multiple Request_get_status Ireduce Iallreduce Ibarrier
    Ibcast Ialltoall Ialltoallv Iallgather Iallgatherv Igather Igatherv Iscatter Iscatterv Ireduce_scatter Iscan
    Reduce_scatter_block Ireduce_scatter_block Alltoallw Ialltoallw Get_accumulate Dist_graph_create
    Neighbor_allgather Ineighbor_allgather Neighbor_allgatherv Ineighbor_allgatherv Neighbor_alltoall
    Ineighbor_alltoall Neighbor_alltoallv Ineighbor_alltoallv Neighbor_alltoallw Ineighbor_alltoallw Fetch_and_op
    Compare_and_swap Win_flush Win_flush_all Win_flush_local Win_flush_local_all Mprobe Improbe Mrecv Imrecv
    Comm_split_type File_write_all_begin File_write_all_end File_read_all_begin File_read_all_end
    File_write_at_all_begin File_write_at_all_end File_read_at_all_begin File_read_at_all_end File_read_ordered
    File_read_ordered_begin File_read_ordered_end File_read_shared File_write_ordered File_write_ordered_begin
    File_write_ordered_end File_write_shared Comm_dup_with_info Dist_graph_create_adjacent Comm_create_group Exscan
    Iexscan File_get_info File_get_size File_set_view File_set_size
"""

NUMBERS: dict[str, int] = {f"MPI_{name}": number for number, name in enumerate(_NAMES_BY_NUMBER.split(), start=1)}
"""Extrae's number of each MPI call, 1 to 219."""

# Kind of call by its name after "MPI_"; the kinds are the keys of event_types.MPI_TYPES. nsys has File_open among the
# collectives; Extrae's views look for it under I/O.
_KINDS: tuple[tuple[str, str], ...] = (
    (r"File_.*", "io"),
    (r"Win_.*|R?(put|get|accumulate|get_accumulate)|Fetch_and_op|Compare_and_swap", "one_sided"),
    (
        r"[BSR]?send(_init)?|I[bsr]?send|I?m?recv|Recv_init|Psend_init|Precv_init|(Is|S)endrecv(_replace)?|I?m?probe"
        r"|Start(all)?|Wait(all|any|some)?|Test(all|any|some)?|Cancel|Pready.*|Parrived",
        "point_to_point",
    ),
    (
        r"I?(neighbor_)?(bcast|barrier|reduce|allreduce|alltoall[vw]?|gatherv?|scatterv?|allgatherv?"
        r"|reduce_scatter(_block)?|scan|exscan)(_init)?",
        "collective",
    ),
)

# Paraver state (event_types.STATES) by the name after "MPI_".
_STATES: tuple[tuple[str, int], ...] = (
    (r"Wait(all|any|some)?", 8),
    (r"Test(all|any|some)?|I?m?probe", 6),
    (r"I[bsr]?send|Isendrecv(_replace)?", 10),
    (r"Im?recv", 11),
    (r"[BSR]?send", 4),
    (r"Sendrecv(_replace)?", 16),
    (r"M?recv", 3),
    (r"Barrier|Win_(fence|start|complete|post|wait|lock|unlock|flush).*", 5),
    (r"R?(put|get|accumulate|get_accumulate)|Fetch_and_op|Compare_and_swap", 20),
    (r"File_.*", 12),
    (
        r"(neighbor_)?(bcast|reduce|allreduce|alltoall[vw]?|gatherv?|scatterv?|allgatherv?|reduce_scatter(_block)?|scan|exscan)",
        13,
    ),
)


class MessagePart(enum.IntFlag):
    """What a call does for point-to-point messages."""

    SENDS = enum.auto()
    RECEIVES = enum.auto()
    LATER = enum.auto()  # makes a request, which a later call completes
    DEFINES = enum.auto()  # makes a persistent request, which later calls start and complete
    STARTS = enum.auto()  # starts persistent requests
    COMPLETES = enum.auto()  # completes requests


# What a call does by its name after "MPI_". nsys does not report cancelled and freed requests.
_PARTS: tuple[tuple[str, int], ...] = (
    (r"[BSR]?send", MessagePart.SENDS),
    (r"M?recv", MessagePart.RECEIVES),
    (r"Sendrecv(_replace)?", MessagePart.SENDS | MessagePart.RECEIVES),
    (r"I[bsr]?send", MessagePart.SENDS | MessagePart.LATER),
    (r"Im?recv", MessagePart.RECEIVES | MessagePart.LATER),
    (r"Isendrecv(_replace)?", MessagePart.SENDS | MessagePart.RECEIVES | MessagePart.LATER),
    (r"[BSRP]?send_init", MessagePart.SENDS | MessagePart.DEFINES),
    (r"P?recv_init", MessagePart.RECEIVES | MessagePart.DEFINES),
    (r"Start(all)?", MessagePart.STARTS),
    (r"(Wait|Test)(all|any|some)?", MessagePart.COMPLETES),
)


def call_kind(names: pl.Expr) -> pl.Expr:
    """Kind of MPI calls: point_to_point, collective, one_sided, io or other.

    >>> names = pl.Series(["MPI_Iallreduce", "MPI_Waitall", "MPI_File_open", "MPI_Win_fence", "MPI_Comm_rank"])
    >>> pl.select(call_kind(pl.lit(names))).to_series().to_list()
    ['collective', 'point_to_point', 'io', 'one_sided', 'other']
    """
    return _of_call(names, _KINDS, "other")


def call_state(names: pl.Expr) -> pl.Expr:
    """Paraver state of a rank inside MPI calls.

    >>> names = pl.Series(["MPI_Recv", "MPI_Waitall", "MPI_Allreduce", "MPI_Init"])
    >>> pl.select(call_state(pl.lit(names))).to_series().to_list()
    [3, 8, 13, 15]
    """
    return _of_call(names, _STATES, 15)


def message_parts(names: pl.Expr) -> pl.Expr:
    """What MPI calls do for point-to-point messages (bits of `MessagePart`), 0 for nothing.

    >>> names = pl.Series(["MPI_Irecv", "MPI_Waitall", "MPI_Probe"])
    >>> [MessagePart(parts) for parts in pl.select(message_parts(pl.lit(names))).to_series()]
    [<MessagePart.RECEIVES|LATER: 6>, <MessagePart.COMPLETES: 32>, <MessagePart: 0>]
    """
    return _of_call(names, _PARTS, 0)


def _of_call(names: pl.Expr, rules: Iterable[tuple[str, int | str]], default: int | str) -> pl.Expr:
    anchored = [(rf"^(?i:{pattern})$", value) for pattern, value in rules]
    return first_match(names.str.strip_prefix("MPI_"), anchored, default)
