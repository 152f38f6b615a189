"""Times that are not known yet: what waits for them is called when they are."""

from collections import deque
from collections.abc import Callable, Sequence


class Later:
    """A time of a simulated run, ns, that may not be known yet."""

    __slots__ = ("_time", "_waiting")

    def __init__(self, time: int | None = None) -> None:
        self._time = time
        self._waiting: list[Callable[[], None]] = []

    @property
    def is_known(self) -> bool:
        return self._time is not None

    @property
    def time(self) -> int:
        assert self._time is not None, "the time is not known yet"
        return self._time

    def set(self, time: int) -> None:
        """Make the time known, once."""
        assert self._time is None, "the time is known already"
        self._time = time
        waiting, self._waiting = self._waiting, []
        _call(waiting)

    def then(self, call: Callable[[], None]) -> None:
        """Call a function as soon as the time is known."""
        if self._time is None:
            self._waiting.append(call)
        else:
            _call([call])


_due: deque[Callable[[], None]] = deque()
_is_calling = False


def _call(functions: Sequence[Callable[[], None]]) -> None:
    """Call functions, and what becomes due by that after them: chains of operations are longer than any stack."""
    global _is_calling
    _due.extend(functions)
    if _is_calling:
        return
    _is_calling = True
    try:
        while _due:
            _due.popleft()()
    finally:
        _due.clear()
        _is_calling = False


def when_known(times: Sequence[Later], call: Callable[[], None]) -> None:
    """Call a function when all of some times are known."""
    missing = len(times)

    def arrived() -> None:
        nonlocal missing
        missing -= 1
        if missing == 0:
            call()

    if not times:
        _call([call])
    for time in times:
        time.then(arrived)
