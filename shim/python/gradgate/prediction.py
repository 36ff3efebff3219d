"""Where nobody declares windows: in which backward the next one will likely end, so that its reduction overlaps with it.

    two windows in a row of n micro-steps on all ranks ──► n is predicted
    a window that ends before: reduced at its step, and the prediction stays
    one that outruns it: reduced once more, and nothing is predicted until two are alike again
    one in which ranks differ: nothing is predicted ever after, since ranks that outrun alone find nobody to reduce with

Depends on what all ranks said together, so all predict the same. No torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .ballot import Verdict


class Prediction:
    """`micro_steps` of the next window, 0: not known. `hits`: windows that ended where it was said, `outrun`: those that went on."""

    def __init__(self) -> None:
        self.micro_steps = 0
        self.hits = 0
        self.outrun = 0
        self._last = 0
        self._differed = False

    def ended(self, verdict: Verdict) -> bool:
        """A window is over. Whether the prediction has changed."""
        before, longest = self.micro_steps, verdict.max_micro_steps
        size = longest if verdict.min_micro_steps == longest else 0
        self._differed |= size != longest
        if before:
            self.hits += size == before
            self.outrun += longest > before
        if size and size == self._last and not self._differed:
            self.micro_steps = size
        elif longest > before or self._differed:
            self.micro_steps = 0
        self._last = size
        return self.micro_steps != before
