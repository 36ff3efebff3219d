"""deploy/reference says what the source and the built programs say, and make.py notices where it does not."""

from __future__ import annotations

import pathlib
import subprocess
import sys
import unittest
import unittest.mock

import tools

REFERENCE = tools.DEPLOY / "reference"
sys.path.append(str(REFERENCE))

import from_programs  # noqa: E402
import from_source  # noqa: E402
import make  # noqa: E402


class Reference(unittest.TestCase):
    def test_is_current(self) -> None:
        command = [sys.executable, "-B", str(REFERENCE / "make.py"), "--build-dir", str(tools.build_folder()), "--check"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""), "./dev docs writes it")

    def table(self, rows: list[make.Row], former: str) -> tuple[str, list[str]]:
        reference = make.Reference(pathlib.Path())
        return reference.text("sample", ["code", "default", "what to do"], rows, former), reference.problems

    def test_keeps_what_only_people_know(self) -> None:
        former = "| code | default | what to do |\n| --- | --- | --- |\n| `a` | 1 | wait \\| see |\n| `gone` | | x |\n"
        text, problems = self.table([["`a`", "2", None]], former)
        self.assertEqual(text, "| code | default | what to do |\n| --- | --- | --- |\n| `a` | 2 | wait \\| see |\n")
        self.assertEqual(problems, [])

    def test_new_code_without_a_remedy_is_a_problem(self) -> None:
        _, problems = self.table([["`a`", None, None]], "| code | default | what to do |\n| `b` | | y |\n")
        self.assertEqual(problems, ["sample: `a` has no 'what to do'; write it into the table"])

    def test_each_source_is_found(self) -> None:
        """That a pattern has gone blind would else be taken for a source that has nothing."""
        self.assertIn("GRADGATE_DAEMON_UID", from_source.variables())
        self.assertIn("TORCHELASTIC_RESTART_COUNT", from_source.variables())
        self.assertLessEqual({"STATE_DIRECTORY", "NOTIFY_SOCKET", "TORCHELASTIC_ERROR_FILE", "NO_COLOR"}, set(from_source.variables()))
        self.assertEqual(from_source.variables()["GRADGATE_DIR"], ["client", "daemon/main", "shim/link"])
        self.assertLessEqual(
            {"link_rejected", "ranks_disagree", "parity", "not_recognised", "stray_parameters", "no_window"}, from_source.reasons()
        )
        self.assertEqual(
            from_source.proto_enum("proto/gradgate/v1/diagnosis.proto", "VerdictKind")["straggler"],
            "a rank for which the others wait in most windows",
        )
        self.assertEqual(
            from_source.cpp_enum("daemon/node/rejection.h", "Rejection")["page_unsealed"], "could shrink or grow under the daemon"
        )
        self.assertEqual(from_source.statuses()["GG_ABORTED"], "ranks disagree; the message names them")
        self.assertEqual(from_source.exceptions()["gradgate.Refused"][0], "GG_FAILED_PRECONDITION")
        self.assertEqual(from_source.metrics()["gradgate_store_keys"], ("gauge", "Keys known of the store."))
        self.assertLessEqual(set(from_source.metrics()), from_source.metric_names())

    def test_metric_that_is_seldom_served_keeps_its_labels(self) -> None:
        reference = make.Reference(tools.build_folder())
        with (
            unittest.mock.patch.object(from_programs, "labels", return_value={}),
            unittest.mock.patch.object(from_source, "metric_names", return_value={"gradgate_store_keys", "gradgate_odd"}),
        ):
            titles, rows = reference.metrics()
        former = "| metric | type | labels | meaning |\n| `gradgate_store_keys` | x | node | y |\n"
        self.assertIn(
            "| `gradgate_store_keys` | gauge | node | Keys known of the store. |\n", reference.text("metrics", titles, rows, former)
        )
        self.assertEqual(
            [problem.split(";")[0] for problem in reference.problems],
            [
                "metrics: `gradgate_odd` has no 'type'",
                "metrics: `gradgate_odd` has no 'labels'",
                "metrics: `gradgate_odd` has no 'meaning'",
            ],
        )

    def test_reads_labels(self) -> None:
        text = "# HELP gradgate_x_seconds How long.\n# TYPE gradgate_x_seconds histogram\n"
        text += 'gradgate_x_seconds_bucket{group="dp",op="a",le="1"} 0\n# HELP other x\n# TYPE other gauge\n'
        self.assertEqual(from_programs.parse(text), {"gradgate_x_seconds": ("histogram", "How long.", ["group", "op"])})


if __name__ == "__main__":
    unittest.main()
