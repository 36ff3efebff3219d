"""Passwords and private keys stay where they were put: a daemon that was given one in every place that takes one, seen from all sides."""

from __future__ import annotations

import os
import pathlib
import shutil
import socket
import subprocess

import case
from case import processes

PASSWORD = "correct-horse-battery-staple-4711"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class SecretsTest(case.SystemCase):
    def setUp(self) -> None:
        super().setUp()
        self.certs = self.folder / "certs"
        who = ("--node", "n1=127.0.0.1", "--client", "ann=operator", "--etcd", "127.0.0.1")
        made = self.run_ctl("certs", str(self.certs), *who)
        self.assertEqual(made.returncode, 0, made.stderr)
        self.seen = {"certs": made.stdout}
        (self.folder / "password").write_text(PASSWORD + "\n")

    def run_ctl(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [self.binaries.path("gradgatectl"), *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    def secrets(self) -> list[str]:
        """The password, and each line inside a private key but the first, which says what kind it is and is alike in all."""
        found = [PASSWORD]
        keys = sorted(self.certs.glob("*-key.pem"))
        self.assertEqual(len(keys), 8)
        for key in keys:
            found += [line for line in key.read_text().splitlines()[2:] if not line.startswith("-----")]
        return found

    def store_flags(self, port: int) -> list[str]:
        files = {"store_ca": "etcd-ca.pem", "store_cert": "etcd-client.pem", "store_key": "etcd-client-key.pem"}
        return [
            f"--store=etcds://127.0.0.1:{port}",
            "--store_user=gradgate",
            f"--store_password_file={self.folder / 'password'}",
            *(f"--{flag}={self.certs / file}" for flag, file in files.items()),
        ]

    def tls_flags(self) -> list[str]:
        files = {"tls_cert": "n1.pem", "tls_key": "n1-key.pem", "tls_client_ca": "ca.pem"}
        return ["--grpc_listen=127.0.0.1:0", "--node_name=n1", *(f"--{flag}={self.certs / file}" for flag, file in files.items())]

    def start_etcd(self, port: int) -> processes.Process | None:
        if not shutil.which("etcd"):
            return None  # then nobody answers the daemon, which tells that as well
        files = {"cert-file": "etcd.pem", "key-file": "etcd-key.pem", "trusted-ca-file": "etcd-ca.pem"}
        url, peer = f"https://127.0.0.1:{port}", f"http://127.0.0.1:{free_port()}"
        command = ["etcd", "--name=test", f"--data-dir={self.folder / 'etcd'}", "--client-cert-auth", "--logger=zap"]
        command += [f"--log-outputs={self.folder / 'etcd.log'}", f"--listen-client-urls={url}", f"--advertise-client-urls={url}"]
        command += [f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=test={peer}"]
        etcd = processes.Process(command + [f"--{flag}={self.certs / file}" for flag, file in files.items()])
        self.addCleanup(etcd.__exit__, None, None, None)
        return etcd

    def ask(self, daemon: processes.Daemon) -> None:
        """All that a daemon answers, to those who may and to those who may not."""
        address = next(line for line in daemon.process.lines if "ready" in line).split("grpc ")[1].split(",")[0]
        for name in ("client", "ann", "n1"):
            tls = [f"--ca={self.certs / 'ca.pem'}", f"--cert={self.certs / name}.pem", f"--key={self.certs / name}-key.pem"]
            for command in (["jobs"], ["nodes"], ["policy", "set", "none", "mode=window"], ["status", "none"], ["doctor", "none"]):
                done = self.run_ctl(f"--target={address}", *tls, "--json", *command)
                self.seen[f"{command} as {name}"] = done.stdout + done.stderr
                if command[0] in ("jobs", "nodes"):
                    self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("needs operator", self.seen["['policy', 'set', 'none', 'mode=window'] as client"])
        self.assertIn("no job", self.seen["['policy', 'set', 'none', 'mode=window'] as ann"])
        self.seen["nodes by api.sock"] = str(daemon.ctl("nodes"))
        self.seen["metrics"] = daemon.scrape()

    def test_nothing_shows_them(self) -> None:
        port = free_port()
        self.start_etcd(port)
        audit = self.folder / "audit.log"
        flags = [*self.store_flags(port), *self.tls_flags(), f"--audit_log={audit}"]
        with processes.Daemon(self.binaries, self.folder / "run", *flags) as daemon:
            self.ask(daemon)
            process = pathlib.Path("/proc") / str(daemon.process.popen.pid)
            for name in ("cmdline", "environ", "comm"):
                self.seen[name] = (process / name).read_bytes().decode(errors="replace")
            limit = next(line for line in (process / "limits").read_text().splitlines() if line.startswith("Max core file size"))
            self.assertEqual(limit.split()[4], "0", "a core would have the keys in it")
        daemon.process.finish()
        self.seen["log"] = daemon.process.output
        self.seen["audit log"] = audit.read_text()
        self.assertIn("AUDIT_OUTCOME_DENIED", self.seen["audit log"])
        self.assertIn("gradgate_certificate_expiry_timestamp_seconds", self.seen["metrics"])
        for path in (self.folder / "run").rglob("*"):
            if path.is_file():
                self.seen[str(path)] = path.read_bytes().decode(errors="replace")
        for secret in self.secrets():
            for where, text in self.seen.items():
                self.assertNotIn(secret, text, where)

    def test_errors_do_not_show_them(self) -> None:
        """A key where a certificate belongs, a password where a path belongs."""
        key, password = str(self.certs / "n1-key.pem"), str(self.folder / "password")
        tries = [
            ["--grpc_listen=127.0.0.1:0", f"--tls_cert={key}", f"--tls_key={key}", f"--tls_client_ca={key}"],
            ["--grpc_listen=127.0.0.1:0", f"--tls_cert={password}", f"--tls_key={password}", f"--tls_client_ca={password}"],
            [*self.store_flags(free_port()), f"--store_ca={key}", f"--store_cert={key}", "--node_name=n1"],
            ["--store=etcd://127.0.0.1:1", "--store_user=gradgate", f"--store_password_file={self.folder}", "--node_name=n1"],
        ]
        for flags in tries:
            command = [self.binaries.path("gradgated"), f"--dir={self.folder / 'run'}", "--metrics_listen=", *flags]
            with processes.Process(command) as daemon:
                end = daemon.finish(60) if flags is not tries[2] else None  # that one goes on alone
                if end is None:
                    daemon.wait_line("ready")
                else:
                    self.assertEqual(end, 1, daemon.output)
                for secret in self.secrets():
                    self.assertNotIn(secret, daemon.output)

    def test_keys_are_their_owners(self) -> None:
        for path in self.certs.iterdir():
            mode = path.stat().st_mode & 0o777
            self.assertEqual(mode, 0o600 if path.name.endswith("-key.pem") else 0o644, path)
            self.assertEqual(path.stat().st_uid, os.geteuid())


if __name__ == "__main__":
    case.main()
