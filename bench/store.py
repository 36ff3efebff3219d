#!/usr/bin/env python3
"""Simulated daemons on one real etcd, all on this machine: writes per second, and how late the others hear of them.

  bench/store.py --build-dir build/release [--daemons 1024] [--processes 8] [--seconds 10] [--writers 1]

Run by hand: it is no gate, since everything shares the cores of one machine.
"""

from __future__ import annotations

import argparse
import pathlib
import random
import shutil
import subprocess
import tempfile
import time
import urllib.request


def start_etcd(folder: str) -> tuple[subprocess.Popen[bytes], str]:
    for _ in range(5):
        client, peer = (random.randrange(10000, 32000) for _ in range(2))
        urls = {"client": f"http://127.0.0.1:{client}", "peer": f"http://127.0.0.1:{peer}"}
        command = ["etcd", "--name=bench", f"--data-dir={folder}/data", "--logger=zap", f"--log-outputs={folder}/log"]
        command += [f"--listen-client-urls={urls['client']}", f"--advertise-client-urls={urls['client']}"]
        command += [f"--listen-peer-urls={urls['peer']}", f"--initial-advertise-peer-urls={urls['peer']}"]
        etcd = subprocess.Popen([*command, f"--initial-cluster=bench={urls['peer']}"])
        deadline = time.monotonic() + 20
        while etcd.poll() is None and time.monotonic() < deadline:
            try:
                with urllib.request.urlopen(f"{urls['client']}/health", timeout=1):
                    return etcd, f"127.0.0.1:{client}"
            except OSError:
                time.sleep(0.05)
        etcd.kill()
        etcd.wait()
        shutil.rmtree(f"{folder}/data", ignore_errors=True)
    raise SystemExit("store: etcd does not start")


def run(options: argparse.Namespace, endpoint: str) -> None:
    each = options.daemons // options.processes
    began = time.monotonic()
    program = str(options.build_dir / "bench/bench_store")
    children = []
    for number in range(options.processes):
        writers = options.writers if number == 0 else 0
        arguments = [program, endpoint, str(each), str(number * each), str(options.seconds), str(writers)]
        children.append(subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
    try:
        for child in children:
            assert child.stdout is not None
            if child.stdout.readline() != "ready\n":
                raise SystemExit("store: a process did not come up")
        print(f"{each * options.processes} daemons announced and watching after {time.monotonic() - began:.1f} s")
        for child in children:
            assert child.stdin is not None
            child.stdin.write("go\n")
            child.stdin.flush()
        rows = [child.communicate(timeout=options.seconds + 120)[0].split() for child in children]
    finally:
        for child in children:
            child.kill()
    results = [dict(zip(row[::2], map(int, row[1::2]), strict=False)) for row in rows]
    puts = sum(result["puts"] for result in results)
    print(f"{puts / options.seconds:.0f} writes/s by {options.writers} writers; {sum(r['delays'] for r in results)} deliveries heard")
    worst, least = max(r["p99"] for r in results), sorted(r["median"] for r in results)[len(results) // 2]
    print(f"watch delay: median {least / 1e6:.1f} ms, p99 {worst / 1e6:.1f} ms, max {max(r['max'] for r in results) / 1e6:.1f} ms")
    print(f"reachable at the end: {sum(r['reachable'] for r in results)}; keys seen by each: {min(r['keys'] for r in results)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build-dir", type=pathlib.Path, required=True)
    for name, value in (("daemons", 1024), ("processes", 8), ("seconds", 10), ("writers", 1)):
        parser.add_argument(f"--{name}", type=int, default=value)
    options = parser.parse_args()
    if shutil.which("etcd") is None:
        raise SystemExit("store: etcd is not installed; ./dev setup gets it")
    with tempfile.TemporaryDirectory() as folder:
        etcd, endpoint = start_etcd(folder)
        try:
            run(options, endpoint)
        finally:
            etcd.kill()
            etcd.wait()


if __name__ == "__main__":
    main()
