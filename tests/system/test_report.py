"""gradgatectl report of real jobs, in a headless Chromium: nothing is loaded, nothing complains, nothing is cut, all can be read.

GRADGATE_SCREENSHOTS names a folder for pictures of each page.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import pathlib
import signal
import subprocess
import unittest
from collections.abc import Iterator

import browser
import case
from case import processes

ENDLESS = ("--epochs", "100000", "--quiet")
PHONE, DESK = 390, 1280

# Text whose contrast with what is behind it is below 4.5, or 3 where it is large: [text, ratio]. Colours are resolved by the browser.
CONTRAST = """(() => {
  const parse = c => (c.match(/[0-9.]+/g) || []).map(Number);
  const channel = v => { v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; };
  const light = c => 0.2126 * channel(c[0]) + 0.7152 * channel(c[1]) + 0.0722 * channel(c[2]);
  const behind = e => {
    for (; e; e = e.parentElement) {
      const c = parse(getComputedStyle(e).backgroundColor);
      if (c.length && (c.length < 4 || c[3] === 1)) return c;
    }
    return [255, 255, 255];
  };
  const poor = [];
  for (const e of document.body.querySelectorAll("*")) {
    const own = [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim());
    if (!own || e.closest("svg")) continue;
    const style = getComputedStyle(e), a = light(parse(style.color)), b = light(behind(e));
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), size = parseFloat(style.fontSize);
    if (ratio < (size >= 24 || (size >= 18.66 && style.fontWeight >= 700) ? 3 : 4.5)) poor.push([e.textContent.trim().slice(0, 40), ratio]);
  }
  return poor;
})()"""

# Fills of charts whose contrast with the page is below 3.
FILLS = CONTRAST.replace(
    CONTRAST[CONTRAST.index("  const poor") :],
    """  const poor = [], page = light(parse(getComputedStyle(document.body).backgroundColor));
  for (const e of document.querySelectorAll("svg .own, svg .exposed, svg .wasted, svg .intended, svg .flag")) {
    const a = light(parse(getComputedStyle(e).fill)), ratio = (Math.max(a, page) + 0.05) / (Math.min(a, page) + 0.05);
    if (ratio < 3) poor.push([e.getAttribute("class"), ratio]);
  }
  return poor;
})()""",
)

# Elements wider than the screen that do not scroll in a box of their own, and text that is cut.
TOO_WIDE = """(() => [...document.body.querySelectorAll("*")].filter(e => !e.closest(".scroll") && !e.closest("svg") &&
  e.getBoundingClientRect().right > innerWidth + 1).map(e => e.tagName + " " + e.textContent.trim().slice(0, 40)))()"""

HEADINGS = """[...document.querySelectorAll("h1, h2, h3")].map(h => Number(h.tagName[1]))"""
UNLABELLED = """[...document.querySelectorAll("svg, .scroll")].filter(
  s => !s.getAttribute("aria-label") && s.getAttribute("aria-hidden") !== "true").length"""


def skip_reason() -> str:
    return "" if browser.find() else f"none of {', '.join(browser.PROGRAMS)} is here: apt-get install chromium-headless-shell"


class Report(case.SystemCase):
    browser: browser.Browser

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        if reason := skip_reason():
            print(f"SKIPPED: {reason}", flush=True)
            raise unittest.SkipTest(reason)
        program = browser.find()
        assert program
        cls.browser = browser.Browser(program)
        cls.addClassCleanup(cls.browser.__exit__, None, None, None)

    def setUp(self) -> None:
        super().setUp()
        self.daemon = processes.Daemon(self.binaries, self.folder / "run")
        self.addCleanup(self.daemon.__exit__, None, None, None)

    @contextlib.contextmanager
    def training(self, *options: str, ranks: int = 3, mode: str = "enforce", windows: int = 60) -> Iterator[processes.Process]:
        common = ("--job", self.job, "--daemon-dir", str(self.folder / "run"), "--ranks", str(ranks))
        with processes.trainer(self.binaries, *common, *ENDLESS, *options, env={"GRADGATE": mode}) as process:
            processes.wait_for(f"{windows} windows of {self.job}", lambda: self.windows_closed() >= windows)
            yield process
            process.signal(signal.SIGTERM)
            process.finish()

    def windows_closed(self) -> int:
        status = self.daemon.status(self.job)
        return int(status["job"]["window_count"]) if status else 0

    def report(self, *options: str) -> pathlib.Path:
        path = self.folder / "report.html"
        command = [self.binaries.path("gradgatectl"), "--dir", self.daemon.directory, "report", self.job, "-o", str(path), *options]
        done = subprocess.run(command, capture_output=True, text=True, timeout=processes.DEADLINE_S, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return path

    def check(self, path: pathlib.Path) -> str:
        """All that holds for any report; its text."""
        for width in (DESK, PHONE):
            for dark in (False, True):
                with self.subTest(width=width, dark=dark):
                    self.browser.open(path, width=width, dark=dark)
                    self.assertEqual(self.browser.complaints(), [])
                    self.assertEqual(self.browser.requests(), [path.resolve().as_uri()])
                    self.assertLessEqual(self.browser.evaluate("document.documentElement.scrollWidth"), width)
                    self.assertEqual(self.browser.evaluate(TOO_WIDE), [])
                    self.assertEqual(self.browser.evaluate(CONTRAST), [])
                    self.assertEqual(self.browser.evaluate(FILLS), [])
                    self.picture(f"{self.id().rsplit('.', 1)[-1]}-{width}-{'dark' if dark else 'light'}")
        self.browser.open(path, width=DESK, dark=False)
        headings = self.browser.evaluate(HEADINGS)
        self.assertEqual(headings[0], 1)
        self.assertEqual(headings.count(1), 1)
        self.assertTrue(all(after - before <= 1 for before, after in itertools.pairwise(headings)), headings)
        self.assertEqual(self.browser.evaluate(UNLABELLED), 0)
        text = self.browser.evaluate("document.body.innerText")
        self.assertIsInstance(text, str)
        return " ".join(text.split())

    def picture(self, name: str) -> None:
        if folder := os.environ.get("GRADGATE_SCREENSHOTS"):
            self.browser.screenshot(pathlib.Path(folder) / f"{name}.png")

    def test_wasteful(self) -> None:
        with self.training("--throttle", "5", mode="audit"):
            path = self.report()
        text = self.check(path)
        self.assertRegex(text, r"\b[34]\.\d+ reductions per optimizer step, 1\.0 intended, over")
        self.assertIn("Warning: 4 reductions per optimizer step where 1 would do", text)
        self.assertIn(f"gradgatectl policy set {self.job} mode=window", text)
        self.assertIn("issued beyond the intended ones", text)

    def test_healthy_and_without_scripts(self) -> None:
        with self.training("--throttle", "5"):
            path = self.report()
        text = self.check(path)
        self.assertIn("Healthy:", text)
        self.assertRegex(text, r"\b1\.0 reductions per optimizer step, 1\.0 intended, over")
        self.browser.open(path, width=DESK, dark=False, scripts=False)
        self.assertEqual(" ".join(self.browser.evaluate("document.body.innerText").split()), text)

    def test_straggler(self) -> None:
        with self.training("--throttle", "20", "--slow", "1:10"):
            self.wait_for_verdict("VERDICT_KIND_STRAGGLER")
            path = self.report()
        text = self.check(path)
        self.assertRegex(text, r"Warning: All wait .* for rank 1")
        self.assertRegex(text, r"Ranks and stragglers .*? rank 1 [0-9.]+ m?s own, [0-9.]+ [mµ]?s exposed straggler rank")

    def wait_for_verdict(self, kind: str) -> None:
        command = [self.binaries.path("gradgatectl"), "--dir", self.daemon.directory, "--json", "doctor", self.job]

        def found() -> bool:
            return kind in subprocess.run(command, capture_output=True, text=True, timeout=processes.DEADLINE_S, check=False).stdout

        processes.wait_for(kind, found)

    def test_ended_with_one_rank(self) -> None:
        options = ("--job", self.job, "--daemon-dir", str(self.folder / "run"), "--epochs", "2", "--quiet", "--ranks", "1")
        with processes.trainer(self.binaries, *options) as process:
            self.assertEqual(process.finish(), 0, process.output)
        self.daemon.wait_state(self.job, "FINISHED")
        text = self.check(self.report("--windows", "7"))
        self.assertIn("finished", text)
        self.assertIn("7 windows of ", text)
        self.assertNotIn("Spread over", text)

    def test_lost_ranks(self) -> None:
        with self.training("--throttle", "5") as process:
            os.kill(int(self.daemon.status(self.job)["ranks"][1]["process_id"]), signal.SIGKILL)
            self.wait_for_verdict("VERDICT_KIND_RANK_LOST")
            path = self.report()
            process.signal(signal.SIGKILL)
        text = self.check(path)
        self.assertIn("Critical:", text)
        self.assertRegex(text, r"rank 1 .{0,60} exposed lost")

    def test_before_the_first_window(self) -> None:
        options = ("--job", self.job, "--daemon-dir", str(self.folder / "run"), "--pause-at-window", "0", "--ranks", "1", *ENDLESS)
        with processes.trainer(self.binaries, *options) as process:
            processes.wait_for("the job", lambda: self.daemon.status(self.job) is not None)
            path = self.report()
            process.signal(signal.SIGKILL)
        text = self.check(path)
        self.assertIn("No optimizer step was taken yet.", text)
        self.assertIn("No closed window is kept", text)

    def test_on_paper(self) -> None:
        with self.training("--throttle", "5", mode="audit"):
            path = self.report()
        self.browser.open(path, width=DESK, dark=True, media="print")
        self.assertEqual(self.browser.evaluate("getComputedStyle(document.body).backgroundColor"), "rgb(255, 255, 255)")
        self.assertEqual(self.browser.evaluate(CONTRAST), [])


if __name__ == "__main__":
    case.main()
