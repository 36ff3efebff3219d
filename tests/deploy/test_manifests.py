"""The Kubernetes manifests and the Helm chart: built by kubectl and by Helm's own engine, held against the API's schemas, and what they
say tried on real processes. No cluster is asked."""

from __future__ import annotations

import functools
import importlib
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import unittest
from collections.abc import Iterator
from typing import Any

import tools
import yaml  # type: ignore[import-untyped]
from tools import processes

KUBERNETES = tools.DEPLOY / "kubernetes"
CHART = tools.DEPLOY / "helm" / "gradgate"
BUILDS = ("examples/sidecar", "examples/daemonset", "daemonset", "monitoring")
# The first in which sidecars are on by default, and a later one.
VERSIONS = ("1.29", "1.34")
NOT_OF_KUBERNETES = {"PodMonitor"}
DIRECTORY = "/run/gradgate"
EVERYTHING = {
    "image": {"repository": "registry.example.com:5000/team/gradgate", "tag": "1.2.3", "pullPolicy": "Always"},
    "imagePullSecrets": [{"name": "pull"}],
    "user": 4294967294,
    "group": 1000001,
    "socketDirectory": "/var/run/other",
    "flags": ["--store=etcd://etcd.example.com:2379", "--grpc_listen=0.0.0.0:9766", "--advertise=$(HOST_IP):9766", "--nogrpc_reflection"],
    "metrics": {"address": "$(HOST_IP)", "port": 19767, "annotations": True, "podMonitor": True, "interval": "30s"},
    "networkPolicy": {"enabled": True, "namespaces": ["a", "b"]},
    "hostNetwork": True,
    "tlsSecret": "gradgate-tls",
    "resources": {"requests": {"cpu": 0.1, "memory": "64Mi"}, "limits": {"memory": "1Gi"}},
    "nodeSelector": {"gpu": "yes"},
    "tolerations": [{"operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "priorityClassName": "high",
    "podLabels": {"team": "ml"},
    "podAnnotations": {"note": "text: with a colon"},
}
LITTLE = {
    "metrics": {"address": "", "annotations": False},
    "networkPolicy": {"enabled": False},
    "tolerations": [],
    "resources": {"limits": {}, "requests": {}},
}
# Path of the value, and a value that is refused.
REFUSED: tuple[dict[str, Any], ...] = (
    {"imagee": {}},
    {"image": {"repository": ""}},
    {"image": {"tag": "a b"}},
    {"image": {"pullPolicy": "Sometimes"}},
    {"user": 0},
    {"user": "gradgate"},
    {"group": -1},
    {"socketDirectory": "run"},
    {"socketDirectory": '/run/x", evil: "'},
    {"flags": ["store=x"]},
    {"flags": ["--dir=/elsewhere"]},
    {"flags": "--store=memory"},
    {"metrics": {"port": 0}},
    {"metrics": {"address": "0.0.0.0\n- x"}},
    {"metrics": {"interval": "15"}},
    {"networkPolicy": {"namespaces": [""]}},
    {"hostNetwork": "yes"},
    {"tlsSecret": "Upper"},
    {"resources": {"limits": {"memory": "1 GB"}}},
    {"podLabels": {"n": 1}},
)


@functools.cache
def build(folder: str) -> str:
    command = [tools.program("kubectl", "Debian's kubernetes-client, or Kubernetes' own"), "kustomize", str(KUBERNETES / folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr}")
    return done.stdout


def kustomize(folder: str) -> list[Any]:
    return [one for one in yaml.safe_load_all(build(folder)) if one]


def module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return tools.skip(f"{name} is missing: pip install --requirement tests/tidy/requirements.txt")


def helm() -> Any:
    return module("helm_python")


def render(values: Any) -> list[Any]:
    with helm().Chart.load(str(CHART)) as chart:
        texts = chart.render(values, name="gradgated", namespace="gradgate")
    return [one for name, text in texts.items() if name.endswith(".yaml") for one in yaml.safe_load_all(text) if one]


def pod_spec(manifest: Any) -> Any:
    return manifest["spec"]["template"]["spec"]


def of_kind(manifests: list[Any], kind: str) -> Any:
    (only,) = (one for one in manifests if one["kind"] == kind)
    return only


def daemons(manifests: list[Any]) -> Iterator[tuple[Any, Any]]:
    """Each container that runs the daemon, with its pod."""
    for one in manifests:
        if one["kind"] in ("DaemonSet", "Job"):
            pod = pod_spec(one)
            yield from (
                (pod, container) for container in pod.get("initContainers", []) + pod["containers"] if container["name"] == "gradgated"
            )


class Manifests(unittest.TestCase):
    def assert_valid(self, manifests: list[Any]) -> None:
        kubernetes_validate = module("kubernetes_validate")
        self.assertTrue(manifests)
        for one in manifests:
            for version in VERSIONS if one["kind"] not in NOT_OF_KUBERNETES else ():
                kubernetes_validate.validate(one, version, strict=True)

    def test_what_kustomize_builds_is_valid(self) -> None:
        for folder in BUILDS:
            with self.subTest(folder):
                self.assert_valid(kustomize(folder))

    def test_what_helm_renders_is_valid(self) -> None:
        for values in ({}, EVERYTHING, LITTLE):
            with self.subTest(values):
                self.assert_valid(render(values))

    def test_chart_has_no_fault(self) -> None:
        found = helm().lint(str(CHART))
        self.assertEqual(found["errors"], [])
        self.assertEqual([one["error"] for one in found["messages"]], ["icon is recommended"])

    def test_values_that_cannot_work_are_refused(self) -> None:
        errors = helm().HelmError
        for values in REFUSED:
            with self.subTest(values), self.assertRaises(errors):
                render(values)

    def test_schema_has_every_value(self) -> None:
        values = tools.read_yaml(CHART / "values.yaml")
        schema = yaml.safe_load((CHART / "values.schema.json").read_text(encoding="utf-8"))["properties"]
        self.assertEqual(set(values), set(schema) - {"global"})
        for name in ("image", "metrics", "networkPolicy"):
            self.assertEqual(set(values[name]), set(schema[name]["properties"]), name)
            self.assertFalse(schema[name]["additionalProperties"])
        self.assertLessEqual(set(EVERYTHING), set(values))

    def test_values_arrive(self) -> None:
        manifests = render(EVERYTHING)
        pod = pod_spec(of_kind(manifests, "DaemonSet"))
        ((_, daemon),) = daemons(manifests)
        self.assertEqual(daemon["image"], "registry.example.com:5000/team/gradgate:1.2.3")
        self.assertEqual(daemon["securityContext"]["runAsUser"], 4294967294)
        self.assertEqual(pod["initContainers"][0]["command"][1], "4294967294:1000001")
        self.assertEqual(daemon["args"][2], "--metrics_listen=$(HOST_IP):19767")
        self.assertEqual(daemon["args"][3:], EVERYTHING["flags"])
        self.assertEqual(pod["volumes"][0]["hostPath"]["path"], "/var/run/other")
        self.assertEqual({mount["mountPath"] for mount in daemon["volumeMounts"]}, {DIRECTORY, "/var/lib/gradgate", "/etc/gradgate/tls"})
        self.assertEqual(pod["securityContext"]["fsGroup"], 1000001)
        self.assertTrue(pod["hostNetwork"])
        (rule,) = of_kind(manifests, "NetworkPolicy")["spec"]["ingress"]
        self.assertEqual(len(rule["from"]), 2)
        self.assertEqual(rule["ports"][0]["port"], 19767)
        labels = of_kind(manifests, "DaemonSet")["spec"]["template"]["metadata"]["labels"]
        self.assertEqual(labels["team"], "ml")
        for kind in ("NetworkPolicy", "PodMonitor"):
            spec = of_kind(manifests, kind)["spec"]
            selector = spec.get("podSelector", spec.get("selector"))["matchLabels"]
            self.assertLessEqual(selector.items(), labels.items(), kind)
        little = render(LITTLE)
        self.assertEqual([one["kind"] for one in little], ["DaemonSet"])
        ((_, daemon),) = daemons(little)
        self.assertEqual(daemon["args"][2], "--metrics_listen=")
        self.assertNotIn("ports", daemon)

    def test_chart_says_what_the_manifests_say(self) -> None:
        """But for the environment, which the chart's flags may use, and the label of the release."""
        plain, chart = of_kind(kustomize("daemonset"), "DaemonSet"), of_kind(render({}), "DaemonSet")
        env = [container.pop("env") for one in (plain, chart) for container in pod_spec(one)["containers"]]
        self.assertEqual(env[0], env[1][:1])
        self.assertEqual(pod_spec(plain), pod_spec(chart))
        self.assertEqual(plain["spec"]["template"]["metadata"]["annotations"], chart["spec"]["template"]["metadata"]["annotations"])
        self.assertEqual(plain["spec"]["updateStrategy"], chart["spec"]["updateStrategy"])

    def test_what_the_readme_shows(self) -> None:
        """The values for several nodes, and the loop that makes rules for the operator of Prometheus's own."""
        readme = (tools.DEPLOY / "README.md").read_text(encoding="utf-8")
        values = re.search(r"cat > values.yaml <<'END'\n(.*?)\nEND\n", readme, re.DOTALL)
        loop = re.search(r"^\$ (for name in recording.*?)\| kubectl", readme, re.MULTILINE | re.DOTALL)
        assert values and loop
        manifests = render(yaml.safe_load(values[1]))
        self.assert_valid(manifests)
        ((_, daemon),) = daemons(manifests)
        help_ = subprocess.run(
            [processes.Binaries(tools.build_folder()).path("gradgated"), "--help"], capture_output=True, text=True, check=False
        )
        for argument in daemon["args"]:
            self.assertIn(argument.split("=")[0], help_.stdout)
        made = subprocess.run(["bash", "-c", loop[1]], cwd=tools.ROOT, capture_output=True, text=True, check=True).stdout
        rules = [one for one in yaml.safe_load_all(made) if one]
        self.assertEqual({one["kind"] for one in rules}, {"PrometheusRule"})
        for one, name in zip(rules, ("recording", "alerts"), strict=True):
            self.assertEqual(one["metadata"]["name"], f"gradgate-{name}")
            self.assertEqual(one["spec"], tools.read_yaml(tools.DEPLOY / "prometheus" / f"{name}.yml"))

    def test_no_rights(self) -> None:
        for folder in ("examples/sidecar", "daemonset"):
            found = list(daemons(kustomize(folder)))
            self.assertEqual(len(found), 1)
            for pod, container in found:
                context = {**pod.get("securityContext", {}), **container["securityContext"]}
                self.assertTrue(context["runAsNonRoot"] and context["runAsUser"] > 0 and context["runAsGroup"] > 0, folder)
                self.assertTrue(context["readOnlyRootFilesystem"], folder)
                self.assertFalse(context["allowPrivilegeEscalation"], folder)
                self.assertEqual(context["capabilities"], {"drop": ["ALL"]}, folder)
                self.assertEqual(context["seccompProfile"], {"type": "RuntimeDefault"}, folder)
                self.assertIn("memory", container["resources"]["limits"], folder)
                for forbidden in ("hostNetwork", "hostPID", "hostIPC"):
                    self.assertNotIn(forbidden, pod, folder)
        pod = pod_spec(of_kind(kustomize("daemonset"), "DaemonSet"))
        (first,) = pod["initContainers"]
        self.assertEqual(first["securityContext"]["capabilities"], {"drop": ["ALL"], "add": ["CHOWN"]})
        self.assertEqual(first["command"][0], "chown")
        self.assertFalse(pod["automountServiceAccountToken"])

    def test_training_does_not_wait_for_the_sidecar(self) -> None:
        pod = pod_spec(of_kind(kustomize("examples/sidecar"), "Job"))
        (sidecar,) = pod["initContainers"]
        self.assertEqual(sidecar["restartPolicy"], "Always")
        self.assertLessEqual({"startupProbe", "readinessProbe"} & set(sidecar), set())
        self.assertEqual(sidecar["resources"]["requests"], sidecar["resources"]["limits"], "or a guaranteed pod is none any more")
        self.assertEqual({volume["name"] for volume in pod["volumes"] if "emptyDir" not in volume}, set())

    def test_trainers_find_and_trust_the_daemon(self) -> None:
        ((_, daemon),) = daemons(kustomize("daemonset"))
        ((_, sidecar),) = daemons(kustomize("examples/sidecar"))
        for folder, container in (("examples/sidecar", sidecar), ("examples/daemonset", daemon)):
            pod = pod_spec(of_kind(kustomize(folder), "Job"))
            (trainer,) = pod["containers"]
            env = {one["name"]: one.get("value") for one in trainer["env"]}
            self.assertEqual(env["GRADGATE_DAEMON_UID"], str(container["securityContext"]["runAsUser"]))
            self.assertEqual(env["GRADGATE_DIR"], DIRECTORY)
            self.assertEqual(env["GRADGATE_JOB"], "train", "what was there stays")
            self.assertIn(f"--dir={DIRECTORY}", container["args"])
            (mount,) = (one for one in trainer["volumeMounts"] if one["mountPath"] == DIRECTORY)
            self.assertTrue(mount["readOnly"])
            self.assertEqual([one["name"] for one in pod["volumes"]].count(mount["name"]), 1)

    def test_versions_are_the_projects(self) -> None:
        found = re.search(r"^project\(gradgate VERSION (\S+)", (tools.ROOT / "CMakeLists.txt").read_text(encoding="utf-8"), re.MULTILINE)
        assert found
        chart = tools.read_yaml(CHART / "Chart.yaml")
        self.assertEqual({chart["version"], chart["appVersion"]}, {found[1]})
        for folder in ("examples/sidecar", "daemonset"):
            self.assertEqual({container["image"].split(":")[-1] for _, container in daemons(kustomize(folder))}, {found[1]})


class Alive(unittest.TestCase):
    """The manifests' own flags, environment and probes, with the directory of the test in place of the pod's."""

    def setUp(self) -> None:
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="gradgate-deploy-")))
        self.folder.chmod(0o755)
        self.run_folder = self.folder / "run"
        self.run_folder.mkdir()
        self.binaries = processes.Binaries(tools.build_folder(), "digits")

    def start(self, container: Any, *enter: str, flags: tuple[str, ...] = ()) -> processes.Process:
        values = {DIRECTORY: str(self.run_folder), "0.0.0.0:9767": "127.0.0.1:0", "$(POD_NAME)": "pod", "$(NODE_NAME)": "node"}
        arguments = "\n".join(container["args"])
        for name, value in values.items():
            arguments = arguments.replace(name, value)
        command = [*enter, self.binaries.path(container["command"][0]), *arguments.split("\n"), *flags]
        process = self.enterContext(processes.Process(command))
        process.wait_line(" ready: ")
        return process

    def probe(self, probe: Any) -> int:
        """The exit status; a probe that takes longer than it may has failed."""
        command = [word.replace(DIRECTORY, str(self.run_folder)) for word in probe["exec"]["command"]]
        env = {"PATH": f"{self.binaries.folder}:{os.environ['PATH']}"}
        return subprocess.run(command, env=env, capture_output=True, timeout=probe["timeoutSeconds"], check=False).returncode

    def test_probes(self) -> None:
        ((_, sidecar),) = daemons(kustomize("examples/sidecar"))
        ((_, daemon),) = daemons(kustomize("daemonset"))
        self.assertEqual({**daemon["livenessProbe"], "failureThreshold": 0}, {**sidecar["livenessProbe"], "failureThreshold": 0})
        self.assertEqual(daemon["livenessProbe"]["exec"], daemon["readinessProbe"]["exec"])
        probe = sidecar["livenessProbe"]
        self.assertNotEqual(self.probe(probe), 0, "no daemon yet")
        process = self.start(sidecar)
        self.assertEqual(self.probe(probe), 0)
        process.signal(signal.SIGSTOP)
        self.assertNotEqual(self.probe(probe), 0, "it stands")
        process.signal(signal.SIGCONT)
        self.assertEqual(self.probe(probe), 0)
        process.signal(signal.SIGKILL)
        process.popen.wait()
        self.assertNotEqual(self.probe(probe), 0, "it is gone")

    def test_probes_do_not_blame_the_daemon_for_etcd(self) -> None:
        ((_, daemon),) = daemons(kustomize("daemonset"))
        self.start(daemon, flags=("--store=etcd://127.0.0.1:1", "--grpc_listen=127.0.0.1:0", "--advertise=127.0.0.1:1"))
        self.assertEqual(self.probe(daemon["livenessProbe"]), 0)

    @unittest.skipIf(os.geteuid() != 0, "only root becomes another user and mounts")
    def test_trainer_of_another_user_by_a_read_only_mount(self) -> None:
        ((_, sidecar),) = daemons(kustomize("examples/sidecar"))
        user, group = sidecar["securityContext"]["runAsUser"], sidecar["securityContext"]["runAsGroup"]
        os.chown(self.run_folder, user, group)
        drop = ("--clear-groups", "--no-new-privs", "--bounding-set=-all", "--inh-caps=-all")
        self.start(sidecar, "setpriv", f"--reuid={user}", f"--regid={group}", *drop)
        trainer = pod_spec(of_kind(kustomize("examples/sidecar"), "Job"))["containers"][0]
        env = {one["name"]: one["value"] for one in trainer["env"]}
        mounted = self.folder / "mounted"
        mounted.mkdir()
        script = 'mount --bind "$1" "$2" && mount --options remount,bind,ro "$2" && ! touch "$2/x" && shift 2 && exec "$@"'
        command = ["unshare", "--mount", "sh", "-c", script, "sh", str(self.run_folder), str(mounted)]
        command += [self.binaries.path("digits"), "--ranks", "2", "--epochs", "1", "--job", env["GRADGATE_JOB"], "--quiet"]
        process = self.enterContext(processes.Process(command, {**env, "GRADGATE_DIR": str(mounted)}))
        if process.finish() != 0 and "Operation not permitted" in process.output:
            tools.skip("mounts are not permitted here")
        self.assertEqual(process.popen.returncode, 0, process.output)
        ctl = [self.binaries.path("gradgatectl"), "--dir", str(self.run_folder), "--json", "jobs"]
        jobs = yaml.safe_load(subprocess.run(ctl, capture_output=True, text=True, timeout=30, check=True).stdout)["jobs"]
        self.assertEqual([job["job_name"] for job in jobs], [env["GRADGATE_JOB"]])
        self.assertEqual(jobs[0]["state"], "STATE_FINISHED")


if __name__ == "__main__":
    unittest.main(verbosity=2)
