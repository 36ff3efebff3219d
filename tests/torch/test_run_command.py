"""The command `gradgate run`: what it runs is run as without it, and its own mistakes are told."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import pytest
from forked_runs import ROOT, SCRIPTS

SHIM = str(ROOT / "shim/python")
GRADGATE = [sys.executable, "-m", "gradgate"]
WITHOUT_PATH = [sys.executable, "-c", f"import sys; sys.path.insert(0, {SHIM!r}); from gradgate.run.command import main; sys.exit(main())"]
IN_SCRIPT = "import sys\nif sys.orig_argv[1] == '-c': "  # not in the command's own Python, which is customized as well
PROBE = """
import json, os, sys
print(json.dumps({"arguments": sys.argv[1:], "path": sys.path, "input": sys.stdin.read()}))
print("error", file=sys.stderr)
sys.stdout.flush()
os.write(1, bytes(range(256)))
"""


def environment(**extra: str) -> dict[str, str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith(("GRADGATE", "PYTHON"))}
    library = os.environ.get("GRADGATE_LIBRARY", str(ROOT / "build/debug/lib/libgradgate.so"))
    return {**env, "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": SHIM, "GRADGATE_LIBRARY": library, **extra}


def ended(command: list[str], given: str = "", env: Mapping[str, str] | None = None) -> tuple[int, bytes, bytes]:
    done = subprocess.run(command, input=given.encode(), capture_output=True, env=env or environment(), timeout=60, check=False)
    return done.returncode, done.stdout, done.stderr


def as_without(command: list[str], *options: str, given: str = "", env: Mapping[str, str] | None = None) -> tuple[int, bytes, bytes]:
    """What the command ended with, which is the same without gradgate."""
    plain = ended(command, given, env)
    assert ended([*GRADGATE, "run", *options, "--", *command], given, env) == plain
    return plain


@pytest.mark.parametrize("how", ["--audit", "--enforce"])
def test_arguments_input_output_and_path_are_the_scripts(how: str) -> None:
    arguments = ["a b", "--audit", "--mode", "none", "--", "--report=x", "", "ü\n", "*"]
    status, stdout, stderr = as_without([sys.executable, "-c", PROBE, *arguments], how, given="first\nlast")
    assert (status, stderr) == (0, b"error\n")
    told, _, rest = stdout.partition(b"\n")
    assert json.loads(told)["arguments"] == arguments
    assert json.loads(told)["input"] == "first\nlast"
    assert rest == bytes(range(256))


def test_a_script_needs_no_python_in_front(tmp_path: pathlib.Path) -> None:
    script = tmp_path / "a script.py"
    script.write_text("import sys; print(sys.argv, sys.path[0])")
    assert ended([*GRADGATE, "run", "--", str(script), "x"]) == ended([sys.executable, str(script), "x"])
    assert ended([*GRADGATE, "run", str(script), "--report", "x"]) == ended([sys.executable, str(script), "--report", "x"])


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("sys.exit(3)", 3),
        ("sys.exit('said')", 1),
        ("raise ValueError('not caught')", 1),
        ("import os; os._exit(250)", 250),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
    ],
)
def test_exit_status(code: str, status: int) -> None:
    assert as_without([sys.executable, "-c", f"import sys; {code}"])[0] == status


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
@pytest.mark.parametrize("handled", [True, False])
def test_signals_reach_the_script(number: signal.Signals, handled: bool) -> None:
    handle = f"signal.signal({int(number)}, lambda number, frame: sys.exit(40 + number)); " if handled else ""
    code = f"import os, signal, sys; {handle}print(os.getpid(), flush=True); signal.pause()"
    with subprocess.Popen(
        [*GRADGATE, "run", "--", sys.executable, "-c", code], env=environment(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        assert int(process.stdout.readline()) == process.pid
        process.send_signal(number)
        assert process.wait(30) == (40 + number if handled else -number)


def test_the_users_own_customization_runs(tmp_path: pathlib.Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(f"{IN_SCRIPT}import helper; print('customized', __name__, __file__)")
    (tmp_path / "helper.py").write_text("")
    env = environment(PYTHONPATH=os.pathsep.join([str(tmp_path), SHIM]))
    code = "import sys; print(sys.modules['sitecustomize'].__file__, 'helper' in sys.modules)"
    _, stdout, stderr = as_without([sys.executable, "-c", code], env=env)
    assert stdout.decode().splitlines() == [f"customized sitecustomize {tmp_path}/sitecustomize.py", f"{tmp_path}/sitecustomize.py True"]
    assert stderr == b""


def test_the_users_own_customization_fails_as_without(tmp_path: pathlib.Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(f"{IN_SCRIPT}raise ValueError('of the user')")
    status, stdout, stderr = as_without([sys.executable, "-c", "print('goes on')"], env=environment(PYTHONPATH=f"{tmp_path}:{SHIM}"))
    assert (status, stdout) == (0, b"goes on\n")
    assert b"ValueError: of the user" in stderr


def test_children_are_run_under_it_as_well(tmp_path: pathlib.Path) -> None:
    """They find it through the environment, in front of what the user has there."""
    code = "import os; print(os.environ['PYTHONPATH'].split(os.pathsep)[1:], os.environ['GRADGATE'], os.environ['GRADGATE_JOB'])"
    status, stdout, _ = ended([*GRADGATE, "run", "--enforce", "--job", "of mine", "--", sys.executable, "-c", code])
    assert (status, stdout.decode().strip()) == (0, f"{[SHIM]} enforce of mine")


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        ([], 2, "required: command"),
        (["walk"], 2, "invalid choice: 'walk'"),
        (["run"], 2, "no command: gradgate run [--audit|--enforce] -- torchrun"),
        (["run", "--enforce", "--"], 2, "no command"),
        (["run", "--fast", "python"], 2, "--fast"),
        (["run", "--audit", "--enforce", "--", "python"], 2, "not allowed with argument"),
        (["run", "--mode", "none", "--", "python"], 2, "invalid choice: 'none'"),
        (["run", "--", "no-such-program"], 127, "gradgate run: no-such-program: not found; give a program, as torchrun or python"),
        (["run", "--", str(SCRIPTS)], 127, "not found"),
        (["run", "--report", "/no/such/folder/x", "--", "python"], 2, "--report /no/such/folder/x: there is no folder /no/such/folder"),
        (["run", "--report", "/", "--", "python"], 2, "--report /: this is a folder"),
    ],
)
def test_wrong_usage(arguments: list[str], status: int, text: str) -> None:
    told = ended([*GRADGATE, *arguments])
    assert (told[0], told[1]) == (status, b""), told
    assert text in told[2].decode()
    assert b"Traceback" not in told[2]


def test_help_says_how() -> None:
    status, stdout, _ = ended([*GRADGATE, "run", "--help"])
    assert status == 0
    for text in ("--audit", "--enforce", "--mode", "--report", "--job", "torchrun --nproc-per-node 4 train.py"):
        assert text in stdout.decode()


# With torch.

ALONE = "one process, whose gradients are reduced with nobody"


def report(path: pathlib.Path) -> Any:
    return json.loads(path.read_text())


def test_one_process_and_its_workers(tmp_path: pathlib.Path) -> None:
    """Told once, by the process that trains, also where it ends in the handler of a signal. gradgate need not be on the script's path."""
    script = [sys.executable, str(SCRIPTS / "one_process.py"), "5"]
    env = {name: value for name, value in environment().items() if name != "PYTHONPATH"}
    told = ended([*WITHOUT_PATH, "run", "--report", str(tmp_path / "report.json"), "--", *script], env=env)
    assert told == (5, b"trained\nhandled SIGTERM\n", f"gradgate: left alone: {ALONE}\n".encode())
    assert list(report(tmp_path / "report.json")["left_alone"]) == [ALONE]
    assert report(tmp_path / "report.json")["observed"] == []


def test_ranks_that_the_script_starts_itself(tmp_path: pathlib.Path) -> None:
    """Told once, by rank 0, though nothing in the environment says which that is and the group is gone at the end."""
    script = [sys.executable, str(SCRIPTS / "spawned.py"), "2"]
    env = environment(GLOO_SOCKET_IFNAME="lo", GRADGATE_DIR=str(tmp_path))
    status, stdout, stderr = ended([*GRADGATE, "run", "--enforce", "--report", str(tmp_path / "report.json"), "--", *script], env=env)
    assert (status, stdout) == (0, b"")
    verdict = "ddp · DistributedDataParallel · SGD: 1.00 reductions per optimizer step, mode window; 2 in the window that was only counted"
    assert [line for line in stderr.decode().splitlines() if line.startswith("gradgate: ")] == [f"gradgate: {verdict}"]
    told = report(tmp_path / "report.json")
    assert (told["world_size"], told["left_alone"]) == (2, {})
    [figures] = told["observed"]
    assert (figures["before"], figures["windows"], figures["window_sizes"], figures["late"]) == (2.0, 2, {"2": 2}, 2)


def test_a_script_without_a_step() -> None:
    code = "import torch; model = torch.nn.Linear(2, 1); model(torch.ones(2)).backward(); print(float(model.weight.grad.sum()))"
    assert ended([*GRADGATE, "run", "--enforce", "--", sys.executable, "-c", code]) == (0, b"2.0\n", b"")


def test_a_python_that_ignores_its_environment() -> None:
    """Not observed, and not disturbed."""
    code = "import torch; p = torch.nn.Parameter(torch.ones(1)); p.grad = p.data; torch.optim.SGD([p], lr=1.0).step(); print(p.item())"
    assert ended([*GRADGATE, "run", "--", sys.executable, "-I", "-c", code]) == (0, b"0.0\n", b"")


def test_torchrun(tmp_path: pathlib.Path) -> None:
    env = environment(GLOO_SOCKET_IFNAME="lo", KINETO_LOG_LEVEL="6", GRADGATE_DIR=str(tmp_path / "no-daemon"))
    torchrun = [str(pathlib.Path(sys.executable).parent / "torchrun"), "--standalone", "--nproc-per-node", "2"]
    parameters = set()
    for how, verdict in (
        ("audit", "4.00 reductions per optimizer step, where 1 is enough"),
        ("enforce", "1.00 reductions per optimizer step"),
    ):
        folder = tmp_path / how
        folder.mkdir()
        script = [*torchrun, str(SCRIPTS / "loops.py"), str(folder), "naive"]
        status, stdout, stderr = ended([*GRADGATE, "run", f"--{how}", "--report", str(folder / "report.json"), "--", *script], env=env)
        assert (status, stdout) == (0, b""), stderr.decode()
        told = [line for line in stderr.decode().splitlines() if line.startswith("gradgate: ")]
        assert len(told) == 1, "rank 0 alone, and not torchrun's own process"
        assert verdict in told[0]
        [figures] = report(folder / "report.json")["observed"]
        assert (figures["enforcement"], figures["wrappers"], figures["model"]) == (how, ["ddp"], ["DistributedDataParallel"])
        parameters |= {report(folder / f"{rank}.json")["parameters"] for rank in range(2)}
    assert len(parameters) == 1, "the same bytes on both ranks, both ways"
