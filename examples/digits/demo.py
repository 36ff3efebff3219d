"""./dev demo: trains the same digits twice, reducing at every micro-step and then once per window.

Shows what that saves, and that the daemon and Prometheus count the same as the trainer. Exits non-zero, naming the first
difference, if anything does not agree.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import shutil
import sys
import tempfile
import time
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "demo"))
import processes  # noqa: E402
import sources  # noqa: E402
from table import print_sources, print_table  # noqa: E402

RANKS = 2
ACCUMULATE = 4
MODES = ("every_micro_step", "window")
LEAST_ACCURACY = 0.95


class Disagreement(Exception):
    """Something that must hold does not."""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--build-dir", default="build/release", help="where bin/gradgated, bin/gradgatectl and bin/digits are")
    parser.add_argument("--hidden", type=int, default=512, help="width of the first hidden layer")
    parser.add_argument("--epochs", type=int, default=6, help="passes over the training images")
    parser.add_argument("--batch", type=int, default=8, help="images in a micro-batch")
    parser.add_argument("--no-exact", dest="exact", action="store_false", help="leave out the comparison with exact sums")
    return parser.parse_args()


def run_mode(args: argparse.Namespace, binaries: processes.Binaries, daemon: processes.Daemon, folder: pathlib.Path, mode: str) -> Any:
    """Trains in one mode; returns the report and what each source says."""
    job = f"demo-{mode}"
    options = ["--ranks", str(RANKS), "--accumulate", str(ACCUMULATE), "--mode", mode, "--job", job, "--daemon-dir", daemon.directory]
    options += [
        "--hidden",
        str(args.hidden),
        "--epochs",
        str(args.epochs),
        "--batch",
        str(args.batch),
        "--quiet",
        "--bucket-bytes",
        str(256 << 10),
    ]
    report = processes.train(binaries, folder / f"{mode}.json", *options, deadline_s=300)
    status = daemon.wait_state(job, "FINISHED", deadline_s=10)
    told = {
        "loop": sources.from_loop(report),
        "gg_stats": sources.from_library(report),
        "gradgatectl": sources.from_ctl(status),
        "/metrics": sources.from_metrics(daemon.scrape(), status["job"]["run_id"]),
    }
    return {"report": report, "sources": told}


def exact_hashes(binaries: processes.Binaries, folder: pathlib.Path) -> dict[str, list[str]]:
    """Parameter hashes, of every rank, where all sums are exact."""
    common = [
        "--dtype",
        "float64",
        "--exact",
        "--epochs",
        "2",
        "--hidden",
        "32",
        "--accumulate",
        str(ACCUMULATE),
        "--quiet",
        "--no-daemon",
    ]
    runs = {mode: ["--ranks", str(RANKS), "--mode", mode] for mode in MODES}
    runs["one process, whole batch"] = ["--as-world", str(RANKS)]
    hashes = {}
    for name, options in runs.items():
        report = processes.train(binaries, folder / "exact.json", *common, *options)
        hashes[name] = [rank["parameter_hash"] for rank in report["ranks"]]
    return hashes


def summary(run: Any) -> dict[str, str]:
    """The left table's rows, of one mode."""
    ranks, library = run["report"]["ranks"], run["sources"]["gg_stats"]
    first, counted = library[0], ranks[0]["counted"]
    windows = first["windows_full"] + first["windows_partial"] + first["windows_empty"]
    rows = {
        "windows, each an optimizer step": f"{windows:,}",
        "  of them partial, at the ends of epochs": f"{first['windows_partial']:,}",
        "micro-steps, per rank": f"{first['micro_steps']:,}",
        "reductions, per rank": f"{first['reductions']:,}",
        "reductions per optimizer step": f"{first['reductions'] / first['steps']:.2f}",
        "  in full windows": f"{counted['reductions_in_full_windows'] / counted['windows_full']:.1f}",
        "suppressed reductions, per rank": f"{first['suppressed']:,}",
        "gradient collectives, all ranks": f"{sources.total(library, 'collectives'):,}",
        "MB of gradients sent, all ranks": f"{sources.total(library, 'bytes') / 1e6:,.1f}",
        "exposed seconds, per rank": f"{sources.total(library, 'exposed_ns') / 1e9 / len(ranks):.3f}",
        "milliseconds per optimizer step": f"{1e3 * ranks[0]['train_seconds'] / first['steps']:.2f}",
        "held-out accuracy": f"{100 * ranks[0]['held_out_accuracy']:.2f} %",
    }
    for rank in ranks:
        rows[f"parameter hash, rank {rank['rank']}"] = rank["parameter_hash"]
    return rows


def check(runs: dict[str, Any], hashes: dict[str, list[str]]) -> None:
    """Raises for the first thing that must hold and does not."""
    for mode, run in runs.items():
        difference = sources.first_difference(run["sources"])
        if difference:
            raise Disagreement(f"{mode}: {difference}")
        ranks = run["report"]["ranks"]
        if len({rank["parameter_hash"] for rank in ranks}) != 1:
            raise Disagreement(f"{mode}: ranks ended with different parameters")
        if ranks[0]["held_out_accuracy"] < LEAST_ACCURACY:
            raise Disagreement(f"{mode}: held-out accuracy {ranks[0]['held_out_accuracy']:.4f} is below {LEAST_ACCURACY}")
        counted = ranks[0]["counted"]
        expected = (ACCUMULATE if mode == "every_micro_step" else 1) * counted["windows_full"]
        if counted["reductions_in_full_windows"] != expected:
            raise Disagreement(f"{mode}: {counted['reductions_in_full_windows']} reductions in full windows, {expected} expected")
        if counted["windows_partial"] == 0:
            raise Disagreement(f"{mode}: no partial window was part of it; choose another --batch")
    if len({value for values in hashes.values() for value in values}) > 1:
        raise Disagreement(f"with exact sums the parameters differ: {hashes}")


def main() -> int:
    args = arguments()
    begin = time.monotonic()
    binaries = processes.Binaries(args.build_dir, "digits")
    folder = pathlib.Path(args.build_dir) / "demo"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    shape = f"64 → {args.hidden} → {args.hidden // 2} → 10"
    print(f"digits on {RANKS} ranks, {args.epochs} epochs of 1,438 images, {ACCUMULATE} micro-steps of {args.batch} per window, {shape}")

    runs: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="gradgate-demo-") as directory, processes.Daemon(binaries, directory) as daemon:
        for mode in MODES:
            runs[mode] = run_mode(args, binaries, daemon, folder, mode)
    hashes = exact_hashes(binaries, folder) if args.exact else {}

    columns = [summary(runs[mode]) for mode in MODES]
    rows = [[label, *(column[label] for column in columns)] for label in columns[0]]
    print_table("what a window's reduction saves", ["", *MODES], rows, 44, 24)
    for mode in MODES:
        print_sources(f"{mode}: the same counts from four sources, sum of {RANKS} ranks", runs[mode]["sources"], sources.COUNTS, 18)
    if hashes:
        rows = [[name, *values, *[""] * (RANKS - len(values))] for name, values in hashes.items()]
        print_table("exact sums (--exact, float64): parameter hashes", ["", *(f"rank {r}" for r in range(RANKS))], rows, 44, 24)
    report = folder / "report.json"
    report.write_text(json.dumps({"runs": runs, "exact_parameter_hashes": hashes}, indent=2) + "\n")

    print()
    try:
        check(runs, hashes)
    except Disagreement as problem:
        print(f"demo: FAILED: {problem}; report: {report}")
        return 1
    passed = f"{len(sources.COUNTS)} counts × {RANKS} ranks agree in 4 sources, twice"
    exact = ", exact parameters are the same bytes" if hashes else ""
    print(f"demo: passed: {passed}{exact}; {time.monotonic() - begin:.1f} s; report: {report}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (FileNotFoundError, RuntimeError, TimeoutError) as problem:
        sys.exit(f"demo: {problem}")
