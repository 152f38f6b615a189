"""Lines of a trace: from API calls to what they start, and messages between ranks."""

from __future__ import annotations

import collections
import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from nsys2prv.execution.external_sort import ExternalSort
from nsys2prv.execution.row_order import Merging
from nsys2prv.exports.columns import process_of
from nsys2prv.sources.communication.message_ends import END_SCHEMA
from nsys2prv.sources.correlate import places_of_calls, side_by_side
from nsys2prv.sources.source import CALL, RowKind, Source
from nsys2prv.timeline.time_axis import TimeSelection

EARLY, FEWEST_EARLY = 1_000_000, 3
"""ns from the start of work to its launch from which on times of a device contradict those of its host (a smaller error changes
no conclusion), and how much such work there is at least: less may be odd times."""
_OUTSIDE = -1
"""Row of a call outside the selected time."""


def latencies(launches: pl.DataFrame, key: str) -> pl.DataFrame:
    """Times from launches to what they start (`time` and `to_time`, ns), in the order of `key`: that, the `least` of them, and
    whether most work is so early that times of its device contradict those of its host, `is_early`."""
    latency = pl.col("to_time") - pl.col("time")
    early = (latency <= -EARLY).sum()
    of_key = launches.group_by(key).agg(least=latency.min(), is_early=early >= pl.max_horizontal(FEWEST_EARLY, pl.len() / 2))
    return of_key.sort(key)


class Launches(NamedTuple):
    """Pairs calls with what they start, by correlation id and process, for one report (ids repeat between reports)."""

    calls: ExternalSort
    started: ExternalSort

    @classmethod
    def in_folder(cls, folder: Path) -> Launches:
        """One that writes intermediate files to a folder."""
        return cls(ExternalSort(["correlationId"], folder / "calls"), ExternalSort(["correlationId"], folder / "started"))

    def part(self) -> Launches:
        """One for a piece of work on another thread, to be absorbed when it is done."""
        return Launches(*(ends.part() for ends in self))

    def absorb(self, part: Launches) -> None:
        """Take over what a part collected."""
        for ends, of_part in zip(self, part, strict=True):
            ends.absorb(of_part)

    @property
    def rows(self) -> int:
        """Number of ends that were collected."""
        return self.calls.rows + self.started.rows

    def add(self, source: Source, events: pl.DataFrame, held: pl.Series) -> None:
        """Add events of a source (its columns, with `row` and `start` in ns of the trace); `held`: inside the selected time."""
        if source.launch is None:
            return
        is_call = source.launch == CALL
        if not held.all():
            # A call outside still counts as the outer one of another call with its id.
            outside = pl.when(pl.lit(held)).then("row").otherwise(pl.lit(_OUTSIDE, pl.Int64))
            events = events.with_columns(row=outside) if is_call else events.filter(held)
        process = process_of(pl.col("globalTid" if source.row is RowKind.THREAD else "globalPid"))
        correlated = events.lazy().filter(pl.col("correlationId") > 0)
        if is_call:
            self.calls.add(correlated.select("correlationId", "row", time="start", process=process).collect())
        else:
            tag = pl.lit(source.launch, pl.Int64)
            ends = correlated.select("correlationId", "size", to_row="row", to_time="start", process=process, tag=tag)
            self.started.add(ends.collect())

    def messages(self) -> Iterator[pl.DataFrame]:
        """Columns `row`, `time`, `to_row`, `to_time`, `size` (bytes), `tag`."""
        for started, of_calls in side_by_side(self.started, self.calls):
            if of_calls.is_empty():
                continue
            calls, place = places_of_calls(started, of_calls, "time")
            of_call = calls.select(pl.col("row", "time").gather(place))
            joined = started.hstack(of_call).filter(pl.col("row").is_not_null() & (pl.col("row") != _OUTSIDE))
            yield joined.select("row", "time", "to_row", "to_time", "size", "tag")


SEVERAL_THREADS = "several threads have such messages: of which communicator each is, is not known"
OTHER_COUNT = "its channel has not as many sends as receives"
OTHER_SEQUENCE = "no end of the other rank has its sequence and size"

CONNECTION = ["communicator", "source", "destination", "channel"]
_SIDE = [*CONNECTION, "is_send"]


def pair_connections(ends: pl.DataFrame, no_partner: str) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Messages whose both ends are known, and ends without another one.

    A round ends where the sequence of a side starts again. Where both sides have as many rounds, and begin and end with the
    same sequences, equal sequences of a round are one message. Otherwise messages are counted: that takes as many sends as
    receives, and sequences that always differ by the same number until one of them starts again. Both ends of a message have
    the same size.

    Parameters
    ----------
    ends
        All ends of some connections: columns of `message_ends.END_SCHEMA`, and `row`, the row or clock that they are on.
    no_partner
        Reason for ends of which the other side of the connection has none.

    Returns
    -------
    The sends with `to_row`, `to_begin` and `to_time` of the receives; and the other ends with the `reason`.
    """
    sides = (
        ends.sort("start", "order")
        .with_row_index("end_number")
        .with_columns(
            place=pl.int_range(pl.len(), dtype=pl.Int64).over(_SIDE),
            is_again=(pl.col("sequence") <= pl.col("sequence").shift(1).over(_SIDE)).fill_null(value=False),
            threads=pl.struct("row", "globalTid").n_unique().over(_SIDE),
        )
        .with_columns(round=pl.col("is_again").cast(pl.Int64).cum_sum().over(_SIDE))
    )
    is_send = pl.col("is_send")

    def of_both(name: str, which: Callable[[pl.Expr], pl.Expr]) -> pl.Expr:
        return (which(pl.col(name).filter(is_send)) == which(pl.col(name).filter(~is_send))).fill_null(value=False)

    facts = sides.group_by(CONNECTION, maintain_order=True).agg(
        has_both=pl.col("is_send").n_unique() == 2,
        most_threads=pl.col("threads").max(),
        by_sequence=of_both("round", pl.Expr.max)
        & of_both("sequence", pl.Expr.first)
        & of_both("sequence", pl.Expr.last)
        & (pl.col("sequence").null_count() == 0),
        is_equally_many=is_send.sum() * 2 == pl.len(),
    )
    ends_with_reason = sides.join(facts, on=CONNECTION, how="left", maintain_order="left").with_columns(
        turn=pl.when("by_sequence").then("round").otherwise(0),
        number=pl.when("by_sequence").then("sequence").otherwise("place"),
        reason=pl.when(~pl.col("has_both"))
        .then(pl.lit(no_partner))
        .when(pl.col("most_threads") > 1)
        .then(pl.lit(SEVERAL_THREADS))
        .when(~pl.col("by_sequence") & ~pl.col("is_equally_many"))
        .then(pl.lit(OTHER_COUNT)),
    )
    usable = ends_with_reason.filter(pl.col("reason").is_null())
    message = [*CONNECTION, "turn", "number"]
    matches = usable.filter("is_send").join(
        usable.filter(~pl.col("is_send")).select(
            *message,
            to_row="row",
            to_begin="start",
            to_time="end",
            to_size="size",
            to_sequence="sequence",
            to_number="end_number",
            to_is_again="is_again",
        ),
        on=message,
        how="inner",
        maintain_order="left",
    )
    difference = pl.col("sequence") - pl.col("to_sequence")
    goes_on = (difference == difference.shift(1).over(CONNECTION)) | pl.col("is_again") | pl.col("to_is_again")
    # The size of a receive is known when it is complete.
    has_size = pl.col("to_time").is_null() | (pl.col("size") == pl.col("to_size"))
    pairs = (
        matches.with_columns(fits=has_size & (pl.col("by_sequence") | goes_on.fill_null(value=True)))
        # Where counting fails once, an end is missing, and it is not known from where on.
        .filter(pl.when("by_sequence").then("fits").otherwise(pl.col("fits").all().over(CONNECTION)))
    )
    paired = pl.concat([pairs["end_number"], pairs["to_number"]])
    alone = ends_with_reason.filter(~pl.col("end_number").is_in(paired.implode())).with_columns(
        pl.col("reason").fill_null(OTHER_SEQUENCE)
    )
    return pairs, alone


NO_COMMUNICATOR = "its communicator is not known"
NO_DESTINATION = "sent to no rank (MPI_PROC_NULL)"
NO_SOURCE = "its source is not known (MPI_ANY_SOURCE, MPI_PROC_NULL)"
NO_PARTNER = "the other rank has no such calls in this trace"
NO_MATCH = "no call of the other rank matches"
NO_END = "the call that completes the receive is not known"
BROKEN = "its text is not complete"
OUTSIDE = "sent or received outside the chosen time"

SENDS, RECEIVES = "sends", "receives"

_PAIR = ["communicator", "source", "destination"]
_KEY = [*_PAIR, "tag"]
_SEQUENCE_BITS = 32
_PENDING_ROWS = 10_000
_COLUMNS = ["start", "order", "end", "is_send", *_KEY, "size", "row"]
_OF_NETWORK = ["globalTid", "start", "order", "end", "is_send", *CONNECTION, "sequence", "tag", "size", "row"]


class Messages:
    """Pairs sends with receives by communicator, source, destination and tag, in the order of their calls; messages of NCCL
    over the network by their channels and sequences.

    Collects the ends of all reports on the common time axis, and pairs them when all are there. `backward` is the number of
    messages that arrive before they were sent: the clocks of their reports don't match."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ends = ExternalSort(["start", "order"], folder / "ends")
        self._of_network = ExternalSort(["connection", "start", "order"], folder / "of-network")
        self._any_tag = _distinct({name: END_SCHEMA[name] for name in _PAIR})
        self._members = _distinct(dict.fromkeys(("communicator", "rank"), pl.Int64))
        self.matched = self.backward = 0
        self.senders: set[int] = set()
        self.left_out: Counter[str] = Counter()
        self.unmatched: dict[str, Counter[str]] = {SENDS: Counter(), RECEIVES: Counter()}

    def part(self) -> Messages:
        """One for a piece of work on another thread, to be absorbed when it is done."""
        part = Messages(self._folder)
        part._ends, part._of_network = self._ends.part(), self._of_network.part()
        return part

    def in_folder(self, folder: Path) -> Messages:
        """The same ends, for an attempt to pair them that writes to another folder."""
        again = Messages(folder)
        again._ends, again._of_network = self._ends, self._of_network
        again._any_tag, again._members = self._any_tag, self._members
        again.unmatched = {what: Counter(counts) for what, counts in self.unmatched.items()}
        return again

    def absorb(self, part: Messages) -> None:
        """Take over what a part collected."""
        self._ends.absorb(part._ends)
        self._of_network.absorb(part._of_network)
        self._any_tag.add(part._any_tag.rows)
        self._members.add(part._members.rows)
        for what, counts in part.unmatched.items():
            self.unmatched[what] += counts

    def add(self, ends: pl.DataFrame) -> None:
        """Add ends of messages: columns of `END_SCHEMA` with times of the common axis, and `row`."""
        self._add_of_network(ends.filter(pl.col("channel").is_not_null()))
        ends = ends.filter(pl.col("channel").is_null())
        rank = pl.when("is_send").then("source").otherwise("destination")
        self._members.add(ends.select("communicator", rank=rank).drop_nulls())
        reason = (
            pl.when(pl.col("communicator").is_null() | rank.is_null())
            .then(pl.lit(NO_COMMUNICATOR))
            .when(pl.col("is_send") & (pl.col("destination").fill_null(-1) < 0))
            .then(pl.lit(NO_DESTINATION))
            .when(~pl.col("is_send") & (pl.col("source").fill_null(-1) < 0))
            .then(pl.lit(NO_SOURCE))
        )
        checked = ends.with_columns(reason=reason)
        self._count(checked.drop_nulls("reason"))
        usable = checked.filter(pl.col("reason").is_null())
        self._any_tag.add(usable.filter(~pl.col("is_send") & (pl.col("tag") < 0)).select(_PAIR))
        self._ends.add(usable.select(_COLUMNS))

    def _add_of_network(self, ends: pl.DataFrame) -> None:
        is_complete = pl.col("channel") >= 0
        self._count(ends.filter(~is_complete).with_columns(reason=pl.lit(BROKEN)))
        connection = pl.struct(CONNECTION).hash().reinterpret(signed=True)
        self._of_network.add(ends.filter(is_complete).select(*_OF_NETWORK, connection=connection))

    def messages(self, selection: TimeSelection) -> Iterator[pl.DataFrame]:
        """Messages inside the selected time: columns of `matched_ends`, in ns of the trace."""
        for pairs in self.matched_ends():
            yield self._inside(pairs, selection)

    def matched_ends(self) -> Iterator[pl.DataFrame]:
        """All messages: columns `row`, `time` (the send), `to_row`, `to_begin`, `to_time` (start of the receive, end of the
        call that completes it, null where that is not known; ns of the axis), `size` (bytes), `tag`."""
        of_network = (pair_connections(window, NO_PARTNER) for window in self._of_network.windows())
        for pairs, alone in itertools.chain(self._pairs(), of_network):
            self._count(alone)
            self.matched += pairs.height
            yield pairs.select("row", "to_row", "to_begin", "to_time", "size", "tag", time="start")

    def as_json(self) -> dict[str, object]:
        """Numbers of messages, for the account."""
        return {
            "matched": self.matched,
            "written": self.matched - self.left_out.total(),
            "left_out": dict(sorted(self.left_out.items())),
            "backward": self.backward,
            "unmatched": {what: dict(sorted(counts.items())) for what, counts in self.unmatched.items()},
        }

    def _pairs(self) -> Iterator[tuple[pl.DataFrame, pl.DataFrame]]:
        """Messages whose ends have the same key, and ends without another one, with the `reason`."""
        for sends, receives in self._ends_by_key():
            pairs = sends.join(
                receives.select("key", to_row="row", to_begin="start", to_time="end"),
                on="key",
                how="inner",
                maintain_order="left",
            )
            alone = pl.concat([sends.join(receives, on="key", how="anti"), receives.join(sends, on="key", how="anti")])
            yield pairs, alone.with_columns(reason=self._why_alone(alone))

    def _ends_by_key(self) -> Iterator[tuple[pl.DataFrame, pl.DataFrame]]:
        """Sends and receives with a column `key`, the same for both ends of a message; those of one key come together."""
        numbered = ExternalSort(["key"], self._folder / "numbered")
        with_any_tag = ExternalSort(["pair"], self._folder / "any-tag")
        any_tag = self._any_tag.rows.with_columns(pair=pl.int_range(pl.len(), dtype=pl.Int64))
        sequences = _Sequences()
        for window in self._ends.windows():
            marked = window.join(any_tag, on=_PAIR, how="left", maintain_order="left")
            with_any_tag.add(marked.drop_nulls("pair"))
            numbered.add(sequences.number(marked.filter(pl.col("pair").is_null()).drop("pair")))
        for window in numbered.windows():
            yield _sends_and_receives(window)
        for window in with_any_tag.windows():
            yield _sends_and_receives(_pair_with_any_tag(window))

    def _why_alone(self, ends: pl.DataFrame) -> pl.Series:
        partner = pl.when("is_send").then("destination").otherwise("source")
        members = self._members.rows.with_columns(reason=pl.lit(NO_MATCH))
        partners = ends.select("communicator", rank=partner)
        return partners.join(members, on=["communicator", "rank"], how="left", maintain_order="left")["reason"].fill_null(
            NO_PARTNER
        )

    def _count(self, alone: pl.DataFrame) -> None:
        for is_send, reason, count in alone.group_by("is_send", "reason").len().sort("is_send", "reason").iter_rows():
            self.unmatched[SENDS if is_send else RECEIVES][reason] += count

    def _inside(self, pairs: pl.DataFrame, selection: TimeSelection) -> pl.DataFrame:
        ended = pairs.drop_nulls("to_time")
        inside = ended.filter(selection.hold(ended["time"]) & selection.hold(ended["to_time"]))
        for reason, count in ((NO_END, pairs.height - ended.height), (OUTSIDE, ended.height - inside.height)):
            if count:
                self.left_out[reason] += count
        self.backward += inside.filter(pl.col("to_time") < pl.col("time")).height
        self.senders.update(inside["row"].unique())
        origin = selection.origin
        return inside.select(
            "row",
            pl.col("time") - origin,
            "to_row",
            # A receive that started before the selected time is cut there.
            (pl.col("to_begin") - origin).clip(lower_bound=0),
            pl.col("to_time") - origin,
            "size",
            "tag",
        )


def _distinct(schema: Mapping[str, Any]) -> Merging:
    """Distinct rows, in the order in which they first came."""
    return Merging(partial(pl.DataFrame.unique, maintain_order=True), pl.DataFrame(schema=schema), _PENDING_ROWS)


class _Sequences:
    """Numbers sends, and receives, of one key in their order: equal numbers are the ends of one message."""

    def __init__(self) -> None:
        counts = dict.fromkeys(("number", SENDS, RECEIVES), pl.Int64)
        self._counts = pl.DataFrame(schema={**{name: END_SCHEMA[name] for name in _KEY}, **counts})

    def number(self, ends: pl.DataFrame) -> pl.DataFrame:
        """Adds `key`: the number of communicator, source, destination and tag, and the sequence in it."""
        counts = ends.group_by(_KEY, maintain_order=True).agg(
            more_sends=pl.col("is_send").sum().cast(pl.Int64), more_receives=(~pl.col("is_send")).sum().cast(pl.Int64)
        )
        new = counts.select(_KEY).join(self._counts, on=_KEY, how="anti", maintain_order="left")
        first = self._counts.height
        added = new.with_columns(
            number=pl.int_range(first, first + new.height, dtype=pl.Int64),
            sends=pl.lit(0, pl.Int64),
            receives=pl.lit(0, pl.Int64),
        )
        before = pl.concat([self._counts, added])
        after = before.join(counts, on=_KEY, how="left", maintain_order="left").with_columns(
            sends=pl.col(SENDS) + pl.col("more_sends").fill_null(0),
            receives=pl.col(RECEIVES) + pl.col("more_receives").fill_null(0),
        )
        self._counts = after.select(self._counts.columns)
        placed = ends.join(before, on=_KEY, how="left", maintain_order="left")
        earlier = pl.when("is_send").then(SENDS).otherwise(RECEIVES)
        sequence = pl.int_range(pl.len(), dtype=pl.Int64).over("number", "is_send") + earlier
        key = pl.col("number") * 2**_SEQUENCE_BITS + sequence
        return placed.with_columns(key=key).select(*ends.columns, "key")


def _sends_and_receives(ends: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    return ends.filter("is_send"), ends.filter(~pl.col("is_send"))


def _pair_with_any_tag(ends: pl.DataFrame) -> pl.DataFrame:
    """Adds `key` to the ends of pairs of ranks some of whose receives take any tag.

    Such a receive takes the first send that earlier receives left, so each depends on those before it: this is a loop over
    the ends, but only of these pairs."""
    ordered = ends.sort("pair", "start", "order", maintain_order=True)
    key = list(range(ordered.height))
    waiting: dict[tuple[int, int], collections.deque[int]] = {}
    in_order: dict[int, collections.deque[int]] = {}
    paired: set[int] = set()
    pairs, tags, is_send = (ordered[name].to_list() for name in ("pair", "tag", "is_send"))
    for place, (pair, tag) in enumerate(zip(pairs, tags, strict=True)):
        if is_send[place]:
            waiting.setdefault((pair, tag), collections.deque()).append(place)
            in_order.setdefault(pair, collections.deque()).append(place)
    for place, (pair, tag) in enumerate(zip(pairs, tags, strict=True)):
        if is_send[place]:
            continue
        sends = in_order.get(pair) if tag < 0 else waiting.get((pair, tag))
        while sends:
            send = sends.popleft()
            if send not in paired:
                paired.add(send)
                key[place] = send
                break
    return ordered.with_columns(key=pl.Series(key, dtype=pl.Int64)).drop("pair")
