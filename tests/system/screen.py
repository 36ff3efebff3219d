"""A terminal of 1970 for tests: a pty with a size, what a program has drawn on it, keys. Standard library only.

It knows just the sequences that gradgatectl top may write; any other, and any other control character, fails the test.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
import unicodedata
from collections.abc import Callable

DEADLINE_S = 60.0
SEQUENCE = re.compile(r"\x1b\[(\??)([0-9;]*)([A-Za-z])")
LEFT = "\x1b[?1049l"


class Screen:
    """What is on it: `lines`, of `columns` cells at most."""

    def __init__(self, rows: int, columns: int) -> None:
        self.resize(rows, columns)
        self.alternate = False
        self.cursor_shown = True
        self.wraps = True
        self.colours: set[str] = set()
        self._rest = ""

    def resize(self, rows: int, columns: int) -> None:
        self.rows, self.columns = rows, columns
        self.lines = [""] * rows
        self._row = self._column = 0

    def feed(self, text: str) -> None:
        text = self._rest + text
        self._rest = ""
        while text:
            if text[0] == "\x1b":
                match = SEQUENCE.match(text)
                if not match:
                    if len(text) > 32:
                        raise ValueError(f"not a sequence: {text[:32]!r}")
                    self._rest = text
                    return
                self._obey(*match.groups())
                text = text[match.end() :]
            else:
                self._put(text[0])
                text = text[1:]

    def _obey(self, private: str, parameters: str, final: str) -> None:
        if private:
            mode, on = int(parameters), final == "h"
            names = {1049: "alternate", 25: "cursor_shown", 7: "wraps"}
            setattr(self, names[mode], on)
        elif final == "H":
            row, column = (int(number) for number in (parameters or "1;1").split(";"))
            if not (1 <= row <= self.rows and 1 <= column <= self.columns):
                raise ValueError(f"row {row}, column {column} is off the screen of {self.rows} x {self.columns}")
            self._row, self._column = row - 1, column - 1
        elif final == "J":
            start = 0 if parameters == "2" else self._row
            self.lines[start:] = [""] * (self.rows - start)
        elif final == "K" and parameters == "2":
            self.lines[self._row] = ""
        elif final == "m":
            self.colours.update(number for number in parameters.split(";") if len(number) == 2)
        else:
            raise ValueError(f"unknown sequence {private}{parameters}{final}")

    def _put(self, character: str) -> None:
        if unicodedata.category(character) in ("Cc", "Cf"):
            if self.alternate or character not in "\r\n":
                raise ValueError(f"control character {character!r} on the screen")
            if character == "\n":  # plain text; it scrolls
                self.lines = [*self.lines[1:], ""]
                self._row, self._column = self.rows - 1, 0
            return
        width = 2 if unicodedata.east_asian_width(character) in "WF" else 1
        if self._column + width > self.columns:
            raise ValueError(f"line {self._row} is wider than {self.columns}: {self.lines[self._row]!r}")
        self.lines[self._row] += character
        self._column += width

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


class Terminal:
    """A program on a terminal of its own; ended when the `with` block is left."""

    def __init__(self, command: list[str], rows: int = 24, columns: int = 100, environment: dict[str, str] | None = None) -> None:
        self.screen = Screen(rows, columns)
        self.output = ""
        self.master, self.slave = pty.openpty()
        self._set_size(rows, columns)
        self.before = termios.tcgetattr(self.slave)
        self.process = subprocess.Popen(
            ["setsid", "--ctty", *command],
            stdin=self.slave,
            stdout=self.slave,
            stderr=self.slave,
            env={"PATH": os.environ["PATH"], "TERM": "xterm", "LC_ALL": "C.UTF-8", **(environment or {})},
        )

    def _set_size(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def resize(self, rows: int, columns: int) -> None:
        """A program that drew before it heard of it would be off the screen; so all that comes up to its clearing is not looked at."""
        self._drain(0.0)
        self.screen = Screen(max(rows, self.screen.rows), max(columns, self.screen.columns))
        self.screen.alternate, self.screen.cursor_shown, self.screen.wraps = True, False, False
        self._set_size(rows, columns)

    def type(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    def signal(self, number: int) -> None:
        os.kill(self.process.pid, number)

    def _drain(self, timeout_s: float) -> bool:
        """Whether anything came."""
        ready, _, _ = select.select([self.master], [], [], timeout_s)
        if not ready:
            return False
        try:
            chunk = os.read(self.master, 65536).decode("utf-8", "surrogateescape")
        except OSError:
            return False
        self.output += chunk
        self.screen.feed(chunk)
        return True

    def wait(self, what: str, condition: Callable[[Screen], object], deadline_s: float = DEADLINE_S) -> None:
        end = time.monotonic() + deadline_s
        while not condition(self.screen):
            if time.monotonic() > end:
                raise TimeoutError(f"not within {deadline_s:g} s: {what}; the screen is\n{self.screen.text}\n{self.output[-300:]!r}")
            self._drain(0.05)

    def wait_text(self, text: str, deadline_s: float = DEADLINE_S) -> None:
        self.wait(repr(text), lambda screen: text in screen.text, deadline_s)

    def finish(self, deadline_s: float = 20.0) -> int:
        """The exit status."""
        end = time.monotonic() + deadline_s
        while self.process.poll() is None:
            if time.monotonic() > end:
                raise TimeoutError(f"did not end within {deadline_s:g} s; the screen is\n{self.screen.text}")
            self._drain(0.02)
        while self._drain(0.0):
            pass
        return self.process.returncode

    def restored(self) -> bool:
        """As it was: modes of the line, screen, cursor."""
        screen = self.screen
        return termios.tcgetattr(self.slave) == self.before and not screen.alternate and screen.cursor_shown and screen.wraps

    def hang_up(self) -> None:
        os.close(self.master)
        self.master = -1

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        os.close(self.slave)
        if self.master >= 0:
            os.close(self.master)
