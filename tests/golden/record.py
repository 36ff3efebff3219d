#!/usr/bin/env python3
"""Makes the golden files of a version: builds its library as it was at a commit, runs trainer.c with it, and plays the daemon.

record.py NAME --commit COMMIT: into tests/golden/NAME, where NAME is the page's version. README.md says what each file is."""

from __future__ import annotations

import argparse
import mmap
import os
import pathlib
import selectors
import shutil
import socket
import struct
import subprocess
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
HEADER = struct.Struct("<IHHHHI")  # FrameHeader of proto/link/frames.h
MAGIC, HELLO, GOODBYE = 0x4B4C4747, 1, 4
FRAMES = ("welcome", "reject", "policy")
SECONDS = 60  # longer than a run takes


def run(*command: str | pathlib.Path, cwd: pathlib.Path = ROOT) -> None:
    print("+", *command, flush=True)
    subprocess.run([str(part) for part in command], cwd=cwd, check=True)


def build(commit: str, folder: pathlib.Path) -> tuple[pathlib.Path, pathlib.Path]:
    """The trainer, and the program that writes the daemon's frames, both of the version at `commit`."""
    source, made = folder / "source", folder / "build"
    source.mkdir()
    archive = subprocess.run(["git", "archive", commit], cwd=ROOT, check=True, capture_output=True).stdout
    subprocess.run(["tar", "--extract", "--directory", source], input=archive, check=True)
    run("cmake", "-S", source, "-B", made, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Debug")
    run("cmake", "--build", made, "--target", "gradgate", "--parallel", "2")
    library = made / "lib"
    trainer, frames = folder / "trainer", folder / "frames"
    run(
        "cc",
        "-std=c99",
        f"-I{source}/shim/include",
        HERE / "trainer.c",
        f"-L{library}",
        f"-Wl,-rpath,{library}",
        "-lgradgate",
        "-o",
        trainer,
    )
    policy = ["-DWITH_POLICY"] if "struct PolicyFrame" in (source / "proto/link/frames.h").read_text() else []
    run("c++", "-std=c++20", *policy, f"-I{source}", HERE / "daemon_frames.cc", "-o", frames)
    for name, path in (("page", "stats_page"), ("frames", "frames")):
        shutil.copyfile(source / "tests/proto" / f"{path}.golden", folder / f"{name}.layout")
    return trainer, frames


def as_text(data: bytes) -> str:
    """Lines "OFFSET: BYTES" of 32 bytes, without those that are zero; the last one says how long it is."""
    lines = [f"{at:08x}: {data[at : at + 32].hex()}\n" for at in range(0, len(data), 32) if any(data[at : at + 32])]
    return "".join(lines) + f"{len(data):08x}:\n"


class Daemon:
    """The other end of shim.sock: welcomes, offers a policy, keeps what comes."""

    def __init__(self, folder: pathlib.Path, frames: dict[str, bytes]) -> None:
        self.frames, self.kept, self.pages = frames, {}, {}  # type: ignore[var-annotated]
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.bind(str(folder / "shim.sock"))
        self.listener.listen()
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.listener, selectors.EVENT_READ)

    def turn(self) -> None:
        for key, _ in self.selector.select(timeout=0.1):
            if key.fileobj is self.listener:
                self.selector.register(self.listener.accept()[0], selectors.EVENT_READ)
            else:
                self.read(key.fileobj)  # type: ignore[arg-type]

    def read(self, connection: socket.socket) -> None:
        packet, descriptors, _, _ = socket.recv_fds(connection, 512, 4)
        if not packet:
            self.selector.unregister(connection)
            return
        kind = HEADER.unpack_from(packet)[3]
        if kind == HELLO:
            self.kept["hello"] = packet
            self.pages[connection] = descriptors[0]
            connection.send(self.frames["welcome"])
            if self.frames["policy"]:
                connection.send(self.frames["policy"])
        elif kind == GOODBYE:
            self.kept["goodbye"] = packet
            descriptor = self.pages.pop(connection)
            with mmap.mmap(descriptor, os.fstat(descriptor).st_size, mmap.MAP_SHARED, mmap.PROT_READ) as page:
                data = bytes(page)
            rank = struct.unpack_from("<I", data, 64 + 244)[0]  # PageIdentity.rank
            self.kept[f"page.{rank}"] = data


def record(trainer: pathlib.Path, frames: pathlib.Path, folder: pathlib.Path, out: pathlib.Path) -> None:
    sent = {}
    for name in FRAMES:
        done = subprocess.run([frames, name], capture_output=True, check=True)
        sent[name] = done.stdout
    daemon = Daemon(folder, sent)
    store = folder / "store"
    store.mkdir()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GRADGATE")}
    process = subprocess.Popen([trainer, store, folder], env={**environment, "GRADGATE_LAUNCH": "golden"})
    deadline = time.monotonic() + SECONDS
    while process.poll() is None or "page.0" not in daemon.kept or "page.1" not in daemon.kept:
        daemon.turn()
        if time.monotonic() > deadline or process.poll():
            process.kill()
            raise SystemExit(f"the trainer did not end well: {process.poll()}, kept {sorted(daemon.kept)}")
    out.mkdir(exist_ok=True)
    for name, data in {**daemon.kept, **{name: data for name, data in sent.items() if data}}.items():
        (out / f"{name}.hex").write_text(as_text(data))
    for rank in (0, 1):
        shutil.copyfile(folder / f"counts.{rank}", out / f"counts.{rank}.txt")
    for name in ("page.layout", "frames.layout"):
        shutil.copyfile(folder / name, out / name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", help="version of the page, and of the folder that is made")
    parser.add_argument("--commit", default="HEAD")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gg-golden-") as name:
        folder = pathlib.Path(name)
        trainer, frames = build(options.commit, folder)
        record(trainer, frames, folder, HERE / options.name)


if __name__ == "__main__":
    main()
