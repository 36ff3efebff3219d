"""./dev with stand-ins for the programs it calls: what it would run, in which order, and what it says when they fail."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
STAND_INS = (
    "apt-cache",
    "apt-get",
    "cmake",
    "ctest",
    "dpkg-deb",
    "dpkg-query",
    "etcd",
    "prometheus",
    "promtool",
    "python3",
    "setarch",
    "sudo",
)


class DevTest(unittest.TestCase):
    def setUp(self) -> None:
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.root = pathlib.Path(temporary.name)
        self.root.chmod(0o755)
        (self.root / "bin").mkdir()
        self.log = self.root / "log"
        self.log.write_text("", encoding="utf-8")
        self.log.chmod(0o666)
        for name in STAND_INS:
            self.stand_in(name, "")
        shutil.copy(ROOT / "dev", self.root / "dev")
        (self.root / "tests/tidy").mkdir(parents=True)
        shutil.copy(ROOT / "tests/tidy/setup.sh", self.root / "tests/tidy")
        self.stand_in("../.venv/bin/python", "")
        (self.root / "CMakePresets.json").write_text("{}\n", encoding="utf-8")
        self.install()

    def stand_in(self, name: str, body: str) -> None:
        """A program that logs its name and arguments, then does `body`."""
        path = self.root / "bin" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'#!/bin/sh\necho "{path.name} $*" >>"{self.log}"\n{body}\n', encoding="utf-8")
        path.chmod(0o755)

    def install(self, *missing: str) -> None:
        """Makes dpkg-query report every package it is asked for as installed, but for the missing ones."""
        cases = "".join(f"{m}) ;; " for m in missing)
        body = f'shift 2; for p in "$@"; do case $p in {cases}*) echo "install ok installed $p" ;; esac; done'
        self.stand_in("dpkg-query", body)

    def dev(self, *args: str, unprivileged: bool = False) -> subprocess.CompletedProcess[str]:
        env = {"PATH": f"{self.root}/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(self.root)}
        command = ["./dev", *args]
        if unprivileged and os.geteuid() == 0:
            command = ["setpriv", "--reuid=65534", "--clear-groups", *command]
        return subprocess.run(command, cwd=self.root, env=env, capture_output=True, text=True, check=False, timeout=60)

    def called(self, program: str) -> list[str]:
        lines = self.log.read_text(encoding="utf-8").splitlines()
        return [line for line in lines if line.split()[0] == program]

    def test_without_argument_lists_the_commands(self) -> None:
        done = self.dev()
        self.assertEqual(done.returncode, 0)
        for command in ("setup", "build", "test", "demo", "bench", "lint", "fuzz", "docs", "package", "ci"):
            self.assertIn(f"\n  {command} ", done.stdout)

    def test_unknown_words_are_named(self) -> None:
        for args, word in [(["tset"], "'tset'"), (["test", "--assan"], "'--assan'"), (["setup", "--pyhton"], "'--pyhton'")]:
            done = self.dev(*args)
            self.assertEqual(done.returncode, 1, args)
            self.assertIn(f"{args[0] if len(args) > 1 else 'unknown command'}", done.stderr)
            self.assertIn(word, done.stderr)

    def test_setup_of_a_complete_machine_only_asks(self) -> None:
        done = self.dev("setup")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(self.called("dpkg-query")), 1)
        self.assertEqual(self.called("apt-get"), [])

    @unittest.skipIf(os.geteuid() != 0, "only root installs without sudo")
    def test_setup_installs_what_is_missing_and_nothing_else(self) -> None:
        self.install("ccache", "valgrind")
        done = self.dev("setup")
        self.assertEqual(done.returncode, 0, done.stderr)
        update, install = self.called("apt-get")
        self.assertTrue(update.endswith(" update"), update)
        self.assertTrue(install.endswith(" install --no-install-recommends ccache valgrind"), install)
        self.assertEqual(self.called("sudo"), [])

    @unittest.skipIf(os.geteuid() != 0, "only root installs without sudo")
    def test_setup_tries_twice_then_names_the_packages(self) -> None:
        self.install("ccache")
        self.stand_in("apt-get", "exit 100")
        done = self.dev("setup")
        self.assertEqual(done.returncode, 1)
        self.assertEqual([line.split()[-1] for line in self.called("apt-get")], ["update", "ccache"] * 2)
        self.assertIn("could not install: ccache", done.stderr)

    @unittest.skipIf(os.geteuid() != 0, "only root installs without sudo")
    def test_setup_does_without_lists_that_cannot_be_fetched(self) -> None:
        self.install("ccache")
        self.stand_in("apt-get", 'case "$*" in *update) exit 100 ;; esac')
        done = self.dev("setup")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("not all package lists came", done.stdout)

    def test_setup_gets_promtool_without_the_server(self) -> None:
        (self.root / "bin/promtool").unlink()
        if shutil.which("promtool", path="/usr/sbin:/usr/bin:/sbin:/bin"):
            self.skipTest("promtool is installed here")
        self.dev("setup")
        self.assertTrue(self.called("apt-get")[1].endswith("install --no-install-recommends promtool"))
        self.stand_in("apt-cache", "exit 100")
        self.dev("setup")
        self.assertEqual(self.called("apt-get")[-1], "apt-get download prometheus")

    def test_setup_gets_etcd_without_the_server(self) -> None:
        (self.root / "bin/etcd").unlink()
        if shutil.which("etcd", path="/usr/sbin:/usr/bin:/sbin:/bin"):
            self.skipTest("etcd is installed here")
        self.dev("setup")
        self.assertEqual(self.called("apt-get")[-1], "apt-get download etcd-server")

    @unittest.skipIf(os.geteuid() != 0, "needs to become another user")
    def test_setup_says_that_it_uses_sudo(self) -> None:
        self.install("ccache")
        done = self.dev("setup", unprivileged=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.splitlines()[0], "setup: installs through sudo: ccache")
        self.assertEqual(len(self.called("sudo")), 2)

    def test_dry_run_prints_and_runs_nothing(self) -> None:
        for command in ("build", "test", "demo", "ci"):
            done = self.dev("-n", command)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("+ cmake --preset debug" if command != "demo" else "+ cmake --preset release", done.stdout)
        self.assertEqual(self.called("cmake") + self.called("ctest") + self.called("apt-get"), [])

    def test_build_takes_preset_and_targets(self) -> None:
        self.assertEqual(self.dev("build", "release", "gradgated", "digits").returncode, 0)
        configure, build = self.called("cmake")
        self.assertEqual(configure, "cmake --preset release")
        self.assertTrue(build.startswith("cmake --build build/release --parallel ") and build.endswith("--target gradgated digits"), build)

    def test_test_ends_with_the_summary_of_ctest(self) -> None:
        self.stand_in("ctest", 'echo "100% tests passed, 0 tests failed out of 7"; echo; echo "Total Test time (real) = 1 sec"')
        done = self.dev("test", "Window")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.splitlines()[-3], "100% tests passed, 0 tests failed out of 7")
        self.assertIn("--tests-regex Window", self.called("ctest")[0])
        self.assertIn("--label-exclude ^gpu$", self.called("ctest")[0])

    def test_a_failing_test_or_build_fails(self) -> None:
        self.stand_in("ctest", "exit 8")
        self.assertEqual(self.dev("test").returncode, 8)
        self.stand_in("cmake", "exit 2")
        self.assertEqual(self.dev("test").returncode, 2)
        self.assertEqual(len(self.called("ctest")), 1)

    def test_sanitizers_leave_out_whole_processes(self) -> None:
        self.stand_in("ctest", 'echo "$TSAN_OPTIONS"')
        (self.root / "tests/tsan.supp").write_text("", encoding="utf-8")
        done = self.dev("test", "--tsan")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"halt_on_error=1:second_deadlock_stack=1:suppressions={self.root}/tests/tsan.supp", done.stdout)
        self.assertIn("--test-dir build/tsan", self.called("ctest")[0])
        self.assertIn("--label-exclude ^(gpu|system|tidy|torch|python)$", self.called("ctest")[0])

    def test_the_virtual_environment_is_made_where_it_is_needed(self) -> None:
        for command, wanted in [("build", 0), ("demo", 0), ("lint", 1), ("test", 1), ("demo torch", 1), ("setup --python", 1)]:
            self.log.write_text("", encoding="utf-8")
            self.assertEqual(self.dev(*command.split()).returncode, 0, command)
            self.assertEqual(sum("tests/tidy/environment.py" in line for line in self.called("python3")), wanted, command)
        self.log.write_text("", encoding="utf-8")
        (self.root / "tests/tsan.supp").write_text("", encoding="utf-8")
        self.dev("test", "--tsan")
        self.assertEqual(self.called("python3"), [])

    def test_no_virtual_environment_no_tests(self) -> None:
        self.stand_in("python3", "exit 1")
        for command in (["test"], ["test", "--torch", "2.9.1"], ["demo", "torch"]):
            self.assertEqual(self.dev(*command).returncode, 1, command)
        self.assertEqual(self.called("ctest") + self.called("python"), [])

    def test_another_torch_runs_in_an_environment_of_its_own(self) -> None:
        self.stand_in("../.venv-torch-2.9.1/bin/python", 'echo "5 passed in 1.00s"')
        done = self.dev("test", "ddp", "--torch", "2.9.1")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.splitlines()[-1], "5 passed in 1.00s")
        self.assertTrue(self.called("python3")[0].endswith("tests/tidy/environment.py --torch 2.9.1"))
        self.assertIn("-m pytest -p no:cacheprovider -k ddp tests/torch", self.called("python")[0])
        self.assertEqual(self.called("ctest"), [])
        self.assertIn("--torch needs a version", self.dev("test", "--torch").stderr)

    def test_what_does_not_exist_yet_fails_clearly(self) -> None:
        for command, script in [("bench", "bench/run.py"), ("fuzz", "tests/fuzz/run.py")]:
            done = self.dev(command)
            self.assertEqual(done.returncode, 1)
            self.assertIn(f"nothing is registered yet: {script} does not exist", done.stderr)

    def test_package_makes_packages_of_the_release_build(self) -> None:
        self.stand_in("../deploy/package.sh", "")
        self.assertEqual(self.dev("-n", "package").returncode, 0)
        self.assertEqual(self.called("package.sh") + self.called("cmake"), [])
        done = self.dev("package")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(self.called("cmake")[1].endswith("--target package_content"))
        self.assertEqual(self.called("package.sh"), ["package.sh build/release build/package"])
        self.assertIn("output in build/package", done.stdout.splitlines()[-1])
        self.assertIn("'--deb'", self.dev("package", "--deb").stderr)
        self.stand_in("../deploy/package.sh", "exit 3")
        self.assertEqual(self.dev("package").returncode, 3)

    def test_ci_runs_every_stage_and_the_tests_last(self) -> None:
        done = self.dev("ci")
        self.assertEqual(done.returncode, 0, done.stderr)
        stages = [line[4:] for line in done.stdout.splitlines() if line.startswith("=== ")]
        self.assertEqual(
            stages, ["setup --python", "lint --all", "build", "test --asan", "test --tsan", "demo", "demo torch", "times", "test"]
        )
        self.assertIn("ctest --test-dir build/debug", done.stdout.splitlines()[-1])

    def test_ci_stops_at_the_first_stage_that_fails(self) -> None:
        self.stand_in("python3", 'case "$*" in *lint.py*) exit 1 ;; esac')
        done = self.dev("ci")
        self.assertEqual(done.returncode, 1)
        self.assertIn("ci: stage 'lint --all' failed", done.stderr)
        self.assertEqual(self.called("ctest"), [])


if __name__ == "__main__":
    unittest.main()
