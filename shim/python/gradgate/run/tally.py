"""In which micro-steps of a window gradients were reduced. No torch."""

from __future__ import annotations

from collections import Counter


class Tally:
    """Micro-steps as they end; a window is complete when the next begins."""

    def __init__(self) -> None:
        self.sizes: Counter[int] = Counter()  # windows by their micro-steps
        self.reducing: Counter[int] = Counter()  # micro-steps that reduced, by their place in the window, from 1
        self.reductions = 0
        self.wasted = 0  # in micro-steps that were not their window's last
        self.unreduced = 0  # windows in which no micro-step reduced
        self.busy_ns = 0  # that collectives took in micro-steps that reduced
        self.wasted_ns = 0  # and in wasted ones
        self._window: list[tuple[int, int]] = []

    def micro_step(self, place: int, issued: int, busy_ns: int) -> None:
        """`place`: from 0 in its window. `issued`: its gradient collectives. `busy_ns`: how long they took."""
        if place == 0:
            self.end()
        self._window.append((issued, busy_ns))

    def end(self) -> None:
        """No more micro-steps in this window."""
        if not self._window:
            return
        self.sizes[len(self._window)] += 1
        reducing = {place: busy_ns for place, (issued, busy_ns) in enumerate(self._window, 1) if issued}
        wasted = {place: busy_ns for place, busy_ns in reducing.items() if place < len(self._window)}
        self.reducing.update(reducing.keys())
        self.reductions += len(reducing)
        self.wasted += len(wasted)
        self.unreduced += not reducing
        self.busy_ns += sum(reducing.values())
        self.wasted_ns += sum(wasted.values())
        self._window = []

    @property
    def windows(self) -> int:
        return sum(self.sizes.values())
