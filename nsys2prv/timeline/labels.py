"""Numbers of event types and values over all reports, and the labels that Paraver shows for them."""

import hashlib
import itertools
from collections import Counter
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import lru_cache

import polars as pl

from nsys2prv.sources.registry import EVENT_TYPES, TYPES, type_of
from nsys2prv.timeline.survey import TYPE_COLUMNS, Survey, text_attributes
from nsys2prv.vocabulary import event_types
from nsys2prv.vocabulary.event_types import EventType, Role
from nsys2prv.vocabulary.name_rules import Rule, families
from nsys2prv.vocabulary.printable import on_one_line

LONGEST_LABEL = 240
"""Characters of a label; kernel names can have kilobytes, and views show them in a legend."""
_SHORTENED_HEAD, _SHORTENED_TAIL = 150, 70

_BRACKETS = str.maketrans("[]", "()")
_DIGITS = str.maketrans("0123456789", "ghijklmnop")
_QUOTES_AND_STARS = str.maketrans('"*', "'x")


def readable(text: str) -> str:
    """A text as a label: one line, no brackets (Paraver cuts what is inside), at most `LONGEST_LABEL` characters.

    Long texts keep their start and their end, and a hash that distinguishes them.

    >>> readable("void f<float [4]>(\\n  int)")
    'void f<float (4)>( int)'
    """
    return _of_one_line(text, _BRACKETS)


def readable_type(text: str) -> str:
    """A text as the label of an event type: a view can't name one with a double quote, and reads * as "anything".

    Brackets stay: Paraver cuts them out of values only, and views of other tools know metrics by names that have some.

    >>> readable_type('SM "Active" * [Throughput %]')
    "SM 'Active' x [Throughput %]"
    """
    return _of_one_line(text, _QUOTES_AND_STARS)


def _of_one_line(text: str, replaced: Mapping[int, int]) -> str:
    line = on_one_line(text).translate(replaced) or "(blank)"
    return line if len(line) <= LONGEST_LABEL else f"{line[:_SHORTENED_HEAD]} ... {line[-_SHORTENED_TAIL:]} #{_mark(text)}"


def _mark(text: str) -> str:
    """A mark that only this text has."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]


@dataclass(frozen=True)
class EarlierLabels:
    """Numbers of an earlier trace that are to be kept: of labels of event types, and of each type's values."""

    types: Mapping[str, int] = field(default_factory=dict)
    values: Mapping[int, Mapping[str, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class UsedType:
    """One event type of a trace with the labels of its values; a type of plain numbers has none."""

    number: int
    label: str
    event_type: EventType
    values: Mapping[int, str] | None


class Labels:
    """Numbers of all event types and values of a trace, by what the sources found in all reports.

    `rules` are families of kernels; None for those that come with the program."""

    def __init__(
        self, surveys: Iterable[Survey], earlier: EarlierLabels | None = None, rules: tuple[Rule, ...] | None = None
    ) -> None:
        self._earlier = earlier or EarlierLabels()
        names, by_attribute = _found(surveys)
        of_families = names.filter(pl.col("type").is_in(list(event_types.FAMILIES))).drop_nulls("label")
        family_of = _family_of(tuple(of_families["label"]), rules)
        self._families: dict[tuple[int, str], str] = {}
        for kind, name in of_families.select("type", "label").iter_rows():
            of_kind = event_types.FAMILIES[kind]
            self._families[of_kind, name] = family_of[name]
            by_attribute.setdefault(of_kind, set()).add(family_of[name])
        self._readable = _readable_labels(names, by_attribute)
        self._members = self._number_series(names)
        labels = names.drop_nulls("label").group_by("type").agg("label")
        self._texts = {number: set(texts) for number, texts in labels.iter_rows()}
        for number, texts in by_attribute.items():
            self._texts[number] = texts.union(self._texts.get(number, ()))
        self._values = self._number_values()
        self._used = self._collect_used(names, by_attribute)

    def of_survey(self, survey: Survey) -> pl.DataFrame:
        """Columns `type`, `series`, `label` as in the source's frame, `number` (event type) and `number_value`; for names
        that have families, also the value of the family, in a column named by the event type of families."""
        distinct = survey.groups.select(list(TYPE_COLUMNS)).unique(maintain_order=True)
        rows = [
            (kind, series, label, self._members[kind, series], self._value(kind, label))
            for kind, series, label in distinct.iter_rows()
        ]
        numbers = pl.DataFrame(rows, schema={**TYPE_COLUMNS, "number": pl.Int64, "number_value": pl.Int64}, orient="row")
        of_types = [event_types.FAMILIES.get(kind, 0) for kind, *_ in rows]
        for number in sorted(set(of_types) - {0}):
            values = [
                self._value(number, self._families.get((number, label))) if of_type == number else None
                for of_type, (_, _, label, _, _) in zip(of_types, rows, strict=True)
            ]
            numbers = numbers.with_columns(pl.Series(str(number), values, dtype=pl.Int64))
        return numbers

    def of_attribute(self, survey: Survey, attribute: str) -> pl.DataFrame:
        """Columns named `attribute` (the text) and `value` of a text attribute."""
        texts = survey.groups[attribute].drop_nulls().unique(maintain_order=True).to_list()
        values = [self._value(int(attribute), text) for text in texts]
        return pl.DataFrame({attribute: texts, "value": values}, schema={attribute: pl.String, "value": pl.Int64})

    def used_with(self, lanes: Iterable[tuple[int, int, int]] = ()) -> list[UsedType]:
        """All event types in the order of their numbers.

        Parameters
        ----------
        lanes
            Lanes that overlapping ranges took: number of the event type, lane, and number of the type beside it.
        """
        used = dict(self._used)
        for number, lane, beside in sorted(lanes):
            if lane and number in used:
                label = readable_type(f"{used[number].label} (overlap {lane})")
                used.setdefault(beside, replace(used[number], number=beside, label=label))
        return [used[number] for number in sorted(used)]

    def uses(self, types: Iterable[EventType]) -> bool:
        """Whether any of some event types is in the trace."""
        return not {int(event_type) for event_type in types}.isdisjoint(self._used)

    def texts_of(self, attribute: EventType) -> AbstractSet[str]:
        """Texts of an attribute in all reports."""
        return self._texts.get(attribute.number, set())

    def value_of(self, event_type: EventType, text: str) -> int | None:
        """Value of a text; None where no event has it."""
        return self._value(event_type.number, text) if text in self._readable else None

    def _value(self, kind: int, label: str | None) -> int | None:
        values = TYPES[kind].values
        if label is None or values is None:
            return None
        return self._values[values.name][self._readable[label]]

    def _number_series(self, names: pl.DataFrame) -> dict[tuple[int, str | None], int]:
        numbers: dict[tuple[int, str | None], int] = {}
        for (kind,), members in names.select("type", "series").unique().group_by("type"):
            event_type = TYPES[int(kind)]
            if not event_type.is_series:
                numbers |= {(event_type.number, series): event_type.number for series in members["series"]}
                continue
            used = set(self._earlier.types.values())
            free = (number for number in map(event_type.member, itertools.count()) if number not in used)
            # The default domain comes first.
            for name in sorted(members["series"].to_list(), key=lambda name: (name != "default", name)):
                earlier = self._earlier.types.get(readable_type(event_type.label.format(name)))
                numbers[event_type.number, name] = next(free) if earlier is None else earlier
        return numbers

    def _number_values(self) -> dict[str, dict[str, int]]:
        sets = {event_type.values.name: event_type.values for event_type in EVENT_TYPES if event_type.values}
        # In the order of EVENT_TYPES and of the alphabet: the same names get the same numbers whatever the order of reports.
        labels: dict[str, list[str]] = {name: [] for name in sets}
        for event_type in EVENT_TYPES:
            if event_type.values is not None:
                texts = self._texts.get(event_type.number, ())
                labels[event_type.values.name] += sorted({self._readable[text] for text in texts})
        numbers: dict[str, dict[str, int]] = {}
        for name, value_set in sets.items():
            # A label that is fixed today may have had another number in an earlier version.
            fixed = set(value_set.fixed.values())
            earlier = {label: value for label, value in self._earlier_values(name).items() if value not in fixed}
            numbering = {**earlier, **value_set.fixed}
            free = itertools.count(max([value_set.first - 1, *earlier.values()]) + 1)
            new = (label for label in dict.fromkeys(labels[name]) if label not in numbering)
            numbers[name] = {**numbering, **dict(zip(new, free, strict=False))}
        return numbers

    def _earlier_values(self, value_set: str) -> dict[str, int]:
        numbers: dict[str, int] = {}
        for number, values in self._earlier.values.items():
            if (kind := type_of(number)) is not None and kind.values is not None and kind.values.name == value_set:
                numbers |= {label: value for label, value in values.items() if value != 0}
        return numbers

    def _collect_used(self, names: pl.DataFrame, attributes: Iterable[int]) -> dict[int, UsedType]:
        used = {}
        for kind, series, texts in names.group_by("type", "series").agg(pl.col("label").drop_nulls()).iter_rows():
            event_type = TYPES[kind]
            number = self._members[event_type.number, series]
            label = readable_type(event_type.label.format(series)) if event_type.is_series else event_type.label
            used[number] = UsedType(number, label, event_type, self._used_values(event_type, texts))
        for number in attributes:
            event_type = TYPES[number]
            used[number] = UsedType(number, event_type.label, event_type, self._used_values(event_type, self._texts[number]))
        return used

    def _used_values(self, event_type: EventType, labels: Iterable[str]) -> dict[int, str] | None:
        if event_type.values is None:
            return None
        values = self._values[event_type.values.name]
        by_value = {values[self._readable[label]]: self._readable[label] for label in labels}
        end = {0: event_types.END_LABEL} if event_type.role is not Role.MARK else {}
        return {**end, **dict(sorted(by_value.items()))}


def _found(surveys: Iterable[Survey]) -> tuple[pl.DataFrame, dict[int, set[str]]]:
    """Distinct type, series and label over all reports, and the texts of attributes (empty for plain numbers)."""
    frames: list[pl.DataFrame] = [pl.DataFrame(schema=TYPE_COLUMNS)]
    by_attribute: dict[int, set[str]] = {}
    for survey in surveys:
        frames.append(survey.groups.select(list(TYPE_COLUMNS)).unique())
        texts = {int(name): set(survey.groups[name].drop_nulls()) for name in text_attributes(survey.groups.schema)}
        for kind in survey.source.types if survey.groups.height else ():
            is_attribute = kind.role is Role.ATTRIBUTE and not kind.is_series
            # A text that no event has, such as the outer frames of short call chains, needs no label.
            if is_attribute and (kind.number not in texts or texts[kind.number]):
                by_attribute.setdefault(kind.number, set()).update(texts.get(kind.number, ()))
    return pl.concat(frames).unique().sort("type", "series", "label"), by_attribute


@lru_cache(maxsize=8)
def _family_of(names: tuple[str, ...], rules: tuple[Rule, ...] | None) -> dict[str, str]:
    """The family of each name. It takes a hundred regular expressions, and a run that is read again has the same names."""
    return dict(families(pl.Series(names), rules).select("name", "family").iter_rows()) if names else {}


def _readable_labels(names: pl.DataFrame, by_attribute: Mapping[int, set[str]]) -> dict[str, str]:
    texts = set(names["label"].drop_nulls().to_list()).union(*by_attribute.values())
    labels = {text: readable(text) for text in texts}
    # What is different stays different, in the trace and in all numbers; without digits, which some tables leave out.
    counts = Counter(labels.values())
    cleaned = [text for text, label in labels.items() if counts[label] > 1 and label != text]
    labels |= {text: f"{labels[text]} #{_mark(text).translate(_DIGITS)}" for text in cleaned}
    for number, of_attribute in by_attribute.items():
        values = TYPES[number].values
        if values is not None and values.renamed is not None:
            labels |= {text: readable(label) for text, label in values.renamed(of_attribute).items()}
    return labels
