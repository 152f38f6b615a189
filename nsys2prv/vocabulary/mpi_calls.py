"""Names of MPI calls: Extrae's numbers, the event type each belongs to, and the state a rank is in meanwhile.

The numbers are those of Extrae's traces, so that views made for them work. A call outside the list gets a number above it.
"""

from __future__ import annotations

import enum
import re
from typing import TypeVar

_Answer = TypeVar("_Answer", str, int)

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

FIRST_FREE_NUMBER = len(NUMBERS) + 1

# (kind of call, what its name looks like after "MPI_"), first match counts. The kinds are the keys of
# events.MPI_TYPES. nsys files File_open under collectives; Extrae's views look for it under I/O.
_KINDS: tuple[tuple[str, str], ...] = (
    ("io", r"File_.*"),
    ("one_sided", r"Win_.*|R?(put|get|accumulate|get_accumulate)|Fetch_and_op|Compare_and_swap"),
    (
        "point_to_point",
        r"[BSR]?send(_init)?|I[bsr]?send|I?m?recv|Recv_init|Psend_init|Precv_init|(Is|S)endrecv(_replace)?|I?m?probe"
        r"|Start(all)?|Wait(all|any|some)?|Test(all|any|some)?|Cancel|Pready.*|Parrived",
    ),
    (
        "collective",
        r"I?(neighbor_)?(bcast|barrier|reduce|allreduce|alltoall[vw]?|gatherv?|scatterv?|allgatherv?"
        r"|reduce_scatter(_block)?|scan|exscan)(_init)?",
    ),
)

# (Paraver state, what the name looks like after "MPI_"), first match counts. Numbers: see events.STATES.
_STATES: tuple[tuple[int, str], ...] = (
    (8, r"Wait(all|any|some)?"),
    (6, r"Test(all|any|some)?|I?m?probe"),
    (10, r"I[bsr]?send|Isendrecv(_replace)?"),
    (11, r"Im?recv"),
    (4, r"[BSR]?send"),
    (16, r"Sendrecv(_replace)?"),
    (3, r"M?recv"),
    (5, r"Barrier|Win_(fence|start|complete|post|wait|lock|unlock|flush).*"),
    (20, r"R?(put|get|accumulate|get_accumulate)|Fetch_and_op|Compare_and_swap"),
    (12, r"File_.*"),
    (
        13,
        r"(neighbor_)?(bcast|reduce|allreduce|alltoall[vw]?|gatherv?|scatterv?|allgatherv?|reduce_scatter(_block)?|scan|exscan)",
    ),
)
_OTHER_STATE = 15


class Part(enum.IntFlag):
    """What a call does for point-to-point messages."""

    SENDS = enum.auto()
    RECEIVES = enum.auto()
    LATER = enum.auto()  # makes a request, which a later call completes
    DEFINES = enum.auto()  # makes a persistent request, which later calls start and complete
    STARTS = enum.auto()  # starts persistent requests
    COMPLETES = enum.auto()  # completes requests


# (what a call does, what its name looks like after "MPI_"), first match counts. Cancelled and freed requests are not told.
_PARTS: tuple[tuple[int, str], ...] = (
    (Part.SENDS, r"[BSR]?send"),
    (Part.RECEIVES, r"M?recv"),
    (Part.SENDS | Part.RECEIVES, r"Sendrecv(_replace)?"),
    (Part.SENDS | Part.LATER, r"I[bsr]?send"),
    (Part.RECEIVES | Part.LATER, r"Im?recv"),
    (Part.SENDS | Part.RECEIVES | Part.LATER, r"Isendrecv(_replace)?"),
    (Part.SENDS | Part.DEFINES, r"[BSRP]?send_init"),
    (Part.RECEIVES | Part.DEFINES, r"P?recv_init"),
    (Part.STARTS, r"Start(all)?"),
    (Part.COMPLETES, r"(Wait|Test)(all|any|some)?"),
)


def kind(name: str) -> str:
    """Kind of an MPI call: point_to_point, collective, one_sided, io or other.

    >>> kind("MPI_Iallreduce"), kind("MPI_Waitall"), kind("MPI_File_open"), kind("MPI_Win_fence"), kind("MPI_Comm_rank")
    ('collective', 'point_to_point', 'io', 'one_sided', 'other')
    """
    return _first_match(_KINDS, name, "other")


def state(name: str) -> int:
    """Paraver state of a rank inside an MPI call.

    >>> state("MPI_Recv"), state("MPI_Waitall"), state("MPI_Allreduce"), state("MPI_Init")
    (3, 8, 13, 15)
    """
    return _first_match(_STATES, name, _OTHER_STATE)


def part(name: str) -> int:
    """What an MPI call does for point-to-point messages (bits of `Part`), 0 for nothing.

    >>> Part(part("MPI_Irecv")) == Part.RECEIVES | Part.LATER, part("MPI_Waitall") == Part.COMPLETES, part("MPI_Probe")
    (True, True, 0)
    """
    return _first_match(_PARTS, name, 0)


def _first_match(table: tuple[tuple[_Answer, str], ...], name: str, default: _Answer) -> _Answer:
    call = name.removeprefix("MPI_")
    return next((answer for answer, pattern in table if re.fullmatch(pattern, call, re.IGNORECASE)), default)
