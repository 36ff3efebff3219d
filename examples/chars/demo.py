"""./dev demo torch: trains the same transformer on a book, reducing at every micro-step and then once per window, with DDP and HSDP.

Shows what that saves, and that gradgate, torch's profiler, the daemon and Prometheus count the same. Exits non-zero, naming the first
difference, if anything does not agree.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "examples/demo"))
import processes  # noqa: E402
import sources  # noqa: E402
from table import print_sources, print_table  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
RANKS = {"ddp": 2, "hsdp": 4}
MODES = {"ddp": ("every_micro_step", "window"), "hsdp": ("every_micro_step", "window_replica", "window")}
TITLES = {"ddp": "DDP, 2 ranks", "hsdp": "HSDP (fully_shard), 2 replicas × 2 shards"}
# Reductions in a full window of 4 micro-steps, by role.
WANTED = {
    ("ddp", "every_micro_step"): {"dp": 4},
    ("ddp", "window"): {"dp": 1},
    ("hsdp", "every_micro_step"): {"shard": 4, "replicate": 4},
    ("hsdp", "window_replica"): {"shard": 4, "replicate": 1},
    ("hsdp", "window"): {"shard": 1, "replicate": 1},
}
MOST_LOSS = 2.75  # nats a character, held out: a table of letter frequencies gives 2.9
MOST_LOSS_BETWEEN = 0.05  # the modes: they differ in the order of float32 sums alone


class Disagreement(Exception):
    """Something that must hold does not."""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--build-dir", default="build/release", help="where bin/gradgated, bin/gradgatectl and lib/libgradgate.so are")
    parser.add_argument("--wrapper", choices=RANKS, action="append", help="only this one")
    parser.add_argument("--limit", type=int, help="micro-steps of an epoch; all of the book if not given")
    parser.add_argument("--no-exact", dest="exact", action="store_false", help="leave out the comparison with exact sums")
    return parser.parse_args()


def torchrun(args: argparse.Namespace, ranks: int, script: str, report: pathlib.Path, env: dict[str, str], *options: str) -> list[Any]:
    """Runs a script on so many ranks of this machine; what each wrote into its report. Raises if it fails."""
    command = [sys.executable, "-B", "-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1"]
    command += ["--nproc-per-node", str(ranks), str(HERE / script), "--report", str(report), *options]
    path = [str(ROOT / "shim/python"), os.environ.get("PYTHONPATH", "")]
    env = {
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        "KINETO_LOG_LEVEL": "6",
        "PYTHONPATH": os.pathsep.join(filter(None, path)),
        "GRADGATE_LIBRARY": str(pathlib.Path(args.build_dir).resolve() / "lib/libgradgate.so"),
        **env,
    }
    with processes.Process(command, env) as process:
        try:
            status = process.finish(deadline_s=300)
        except subprocess.TimeoutExpired as late:
            process.signal(signal.SIGTERM)  # ends the ranks too
            process.popen.wait(timeout=60)
            raise RuntimeError(f"not ended within 300 s: {' '.join(command)}\n{process.output}") from late
        if status != 0:
            raise RuntimeError(f"{' '.join(command)} failed:\n{process.output}")
    return [json.loads(report.with_name(f"{report.name}.{rank}").read_text()) for rank in range(ranks)]


def from_profiler(ranks: list[Any]) -> sources.Ranks:
    """The profiler ran from attaching on; which of its collectives were gradgate's own it cannot know."""
    told = {}
    for rank in ranks:
        before, end = rank["before"], rank["stats"]
        told[rank["rank"]] = {
            op: rank["profiled"].get(op, 0) - end["ours"].get(op, 0) + before["ours"].get(op, 0)
            for op in sources.OPERATIONS
            if op in end["collectives"] or op in rank["profiled"]
        }
    return told


def from_stats(ranks: list[Any]) -> sources.Ranks:
    renamed = {"collectives": "gradient_collectives"}
    told = {}
    for rank in ranks:
        stats = rank["stats"]
        counts = {name: stats[renamed.get(name, name)] for name in sources.COUNTS if renamed.get(name, name) in stats}
        own = {op: stats["collectives"].get(op, 0) - stats["ours"].get(op, 0) for op in sources.OPERATIONS[:4]}
        other = own["all_reduce"] - stats["gradient"].get("all_reduce", 0)
        told[rank["rank"]] = {**counts, **own, "other all_reduce": other, "gradgate's own": sum(stats["ours"].values())}
    return told


def from_loop(ranks: list[Any]) -> sources.Ranks:
    told = {rank["rank"]: {**rank["counted"], "other all_reduce": rank["counted"]["logged"]} for rank in ranks}
    return {rank: {name: count for name, count in counts.items() if name != "logged"} for rank, counts in told.items()}


def run_mode(args: argparse.Namespace, daemon: processes.Daemon, folder: pathlib.Path, wrapper: str, mode: str) -> dict[str, Any]:
    """Trains in one mode; returns the ranks' reports, what each source says, and the windows that the daemon saw."""
    job = f"demo-{wrapper}-{mode}"
    options = ["--wrapper", wrapper, "--mode", mode, *(["--limit", str(args.limit)] if args.limit else [])]
    env = {"GRADGATE_JOB": job, "GRADGATE_DIR": daemon.directory}
    ranks = torchrun(args, RANKS[wrapper], "train.py", folder / f"{wrapper}-{mode}", env, *options)
    status = daemon.wait_state(job, "FINISHED", deadline_s=10)
    told = {
        "loop": from_loop(ranks),
        "profiler": from_profiler(ranks),
        "sync.stats()": from_stats(ranks),
        "gradgatectl": sources.from_ctl(status),
        "/metrics": sources.from_metrics(daemon.scrape(), status["job"]["run_id"]),
    }
    return {"ranks": ranks, "sources": told, "roles": {role: counts["issued"] for role, counts in ranks[0]["stats"]["roles"].items()}}


def exact_hashes(args: argparse.Namespace, folder: pathlib.Path, wrapper: str) -> dict[str, list[str]]:
    """Parameter hashes, of every rank, where all sums are exact; without a daemon."""
    env = {"GRADGATE_DIR": str(folder / "no-daemon")}
    ranks = torchrun(args, RANKS[wrapper], "parity.py", folder / f"{wrapper}-exact", env, "--wrapper", wrapper)
    names = ranks[0]["hashes"]
    return {name: [rank["hashes"][name] for rank in ranks if name in rank["hashes"]] for name in names}


def summary(run: Any) -> dict[str, str]:
    """The left table's rows, of one mode."""
    ranks, told = run["ranks"], run["sources"]["sync.stats()"]
    first = told[0]
    rows = {
        "windows, each an optimizer step": f"{first['steps']:,}",
        "  of them partial, at the end of the book": f"{first['windows_partial']:,}",
        "micro-steps, per rank": f"{first['micro_steps']:,}",
    }
    for role, count in run["roles"].items():
        group = "" if role == "dp" else f", {role} group"
        rows[f"reductions{group}, per rank"] = f"{count:,}"
        rows[f"  per optimizer step{group}"] = f"{count / first['steps']:.2f}"
    rows |= {
        "suppressed reductions, per rank": f"{first['suppressed']:,}",
        "gradient collectives, all ranks": f"{sources.total(told, 'collectives'):,}",
        "MB of gradients sent, all ranks": f"{sources.total(told, 'bytes') / 1e6:,.1f}",
        "all-reduces for logging, all ranks": f"{sources.total(told, 'other all_reduce'):,}",
        "gradgate's own collectives, all ranks": f"{sources.total(told, sources.OPERATIONS[-1]):,}",
        "exposed seconds, per rank": f"{sources.total(told, 'exposed_ns') / 1e9 / len(ranks):.3f}",
        "milliseconds per optimizer step": f"{1e3 * ranks[0]['seconds'] / first['steps']:.1f}",
        "held-out loss, nats per character": f"{ranks[0]['held_out_loss']:.3f}",
        "parameter hash, all ranks": " ".join(sorted({rank["parameter_hash"] for rank in ranks})),
    }
    return rows


def check_mode(wrapper: str, mode: str, run: Any) -> None:
    """Raises for the first thing that must hold in one run and does not."""
    where = f"{wrapper}, {mode}"
    difference = sources.first_difference(run["sources"])
    if difference:
        raise Disagreement(f"{where}: {difference}")
    ranks, first = run["ranks"], run["sources"]["sync.stats()"][0]
    if len({rank["parameter_hash"] for rank in ranks}) != 1:
        raise Disagreement(f"{where}: ranks ended with different parameters")
    if first["windows_partial"] == 0:
        raise Disagreement(f"{where}: no partial window was part of it; choose another --limit")
    for role, wanted in WANTED[wrapper, mode].items():
        partial = first["micro_steps"] - 4 * first["windows_full"] if wanted == 4 else first["windows_partial"]
        expected = wanted * first["windows_full"] + partial
        if run["roles"].get(role) != expected:
            raise Disagreement(f"{where}: {run['roles'].get(role)} reductions in the {role} group, {expected} expected")


def check(runs: dict[str, dict[str, Any]], hashes: dict[str, dict[str, list[str]]], most_loss: float) -> None:
    """Raises for the first thing that must hold and does not."""
    for wrapper, modes in runs.items():
        for mode, run in modes.items():
            check_mode(wrapper, mode, run)
        losses = {mode: run["ranks"][0]["held_out_loss"] for mode, run in modes.items()}
        if max(losses.values()) > most_loss or max(losses.values()) - min(losses.values()) > MOST_LOSS_BETWEEN:
            raise Disagreement(f"{wrapper}: held-out losses {losses}: above {most_loss}, or too far from one another")
    for wrapper, told in hashes.items():
        if len({value for values in told.values() for value in values}) > 1:
            raise Disagreement(f"{wrapper}: with exact sums the parameters differ: {told}")


def show(wrapper: str, runs: dict[str, Any], hashes: dict[str, list[str]]) -> None:
    name, ranks = wrapper.upper(), RANKS[wrapper]
    columns = [summary(run) for run in runs.values()]
    rows = [[label, *(column[label] for column in columns)] for label in columns[0]]
    print_table(f"{TITLES[wrapper]}: what a window's reduction saves", ["", *runs], rows, 43, 19)
    for mode, run in runs.items():
        title = f"{name}, {mode}: the same counts from five sources, sum of {ranks} ranks"
        told = run["sources"]["sync.stats()"]
        nothing = [name for name in (*sources.COUNTS, *sources.OPERATIONS) if name in told[0] and not sources.total(told, name)]
        print_sources(title, run["sources"], [name for name in (*sources.COUNTS, *sources.OPERATIONS) if name not in nothing], 16)
    if hashes:
        rows = [[name, *sorted(set(values))] for name, values in hashes.items()]
        print_table(f"{name}, exact sums (float64): parameter hash, all {ranks} ranks", ["", "hash"], rows, 43, 19)


def main() -> int:
    args = arguments()
    begin = time.monotonic()
    binaries = processes.Binaries(args.build_dir)
    folder = pathlib.Path(args.build_dir) / "demo-torch"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    wrappers = args.wrapper or list(RANKS)
    print("a transformer reads Newton's Opticks character by character; windows of 4 micro-steps of 16 × 64 characters", flush=True)

    runs: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory(prefix="gradgate-demo-") as directory, processes.Daemon(binaries, directory) as daemon:
        for wrapper in wrappers:
            runs[wrapper] = {mode: run_mode(args, daemon, folder, wrapper, mode) for mode in MODES[wrapper]}
    hashes = {wrapper: exact_hashes(args, folder, wrapper) for wrapper in wrappers} if args.exact else {}
    for wrapper in wrappers:
        show(wrapper, runs[wrapper], hashes.get(wrapper, {}))
    report = folder / "report.json"
    report.write_text(json.dumps({"runs": runs, "exact_parameter_hashes": hashes}, indent=2) + "\n")

    print()
    try:
        check(runs, hashes, MOST_LOSS if args.limit is None else float("inf"))
    except Disagreement as problem:
        print(f"demo: FAILED: {problem}; report: {report}")
        return 1
    count = sum(len(modes) for modes in runs.values())
    exact = ", exact parameters are the same bytes" if hashes else ""
    took = f"{time.monotonic() - begin:.1f} s"
    print(f"demo: passed: the counts of all ranks agree in 5 sources, {count} times{exact}; {took}; report: {report}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (FileNotFoundError, RuntimeError, TimeoutError) as problem:
        sys.exit(f"demo: {problem}")
