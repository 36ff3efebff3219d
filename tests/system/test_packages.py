"""The Debian packages, unpacked into a root of their own: what is in them, and a trainer that is built against them alone."""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("GRADGATE_BUILD_DIR", ROOT / "build" / "debug")).resolve()
PACKAGES = ("gradgated", "gradgatectl", "libgradgate1", "libgradgate-dev")
VERSION = re.search(r"project\(gradgate VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text(encoding="utf-8"))
PROGRAM = """
#include <cstdio>
#include <gradgate/gradgate.hpp>
int main() { std::printf("%s\\n", gg_version()); }
"""
PROJECT = """
cmake_minimum_required(VERSION 3.25)
project(user LANGUAGES CXX)
find_package(gradgate {asked} CONFIG)
if(NOT gradgate_FOUND)
  message(FATAL_ERROR "no version of it fits: ${{gradgate_CONSIDERED_VERSIONS}}")
endif()
add_executable(user user.cc)
target_compile_features(user PRIVATE cxx_std_20)
target_link_libraries(user PRIVATE gradgate::gradgate)
"""


def run(*command: str | pathlib.Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, timeout=500, check=False, env={**os.environ, **environment}
    )


def must(*command: str | pathlib.Path, **environment: str) -> str:
    done = run(*command, **environment)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


@unittest.skipUnless(shutil.which("dpkg-shlibdeps"), "dpkg-dev is not installed")
class Packages(unittest.TestCase):
    folder: pathlib.Path
    root: pathlib.Path  # all packages unpacked
    library: pathlib.Path  # the folder of libgradgate.so.1 in it

    @classmethod
    def setUpClass(cls) -> None:
        folder = tempfile.TemporaryDirectory(prefix="gradgate-packages-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        must("cpack", "-G", "DEB", "--config", BUILD / "CPackConfig.cmake", "-B", cls.folder)
        cls.root = cls.folder / "root"
        for name in PACKAGES:
            must("dpkg-deb", "--extract", cls.package(name), cls.root)
        cls.library = next(path.parent for path in (cls.root / "usr/lib").rglob("libgradgate.so.1"))

    @classmethod
    def package(cls, name: str) -> pathlib.Path:
        (found,) = cls.folder.glob(f"{name}_*.deb")
        return found

    def field(self, package: str, name: str) -> str:
        return must("dpkg-deb", "--field", self.package(package), name).strip()

    def files(self, package: str) -> dict[str, str]:
        """Name: mode and owner."""
        lines = must("dpkg-deb", "--contents", self.package(package)).splitlines()
        return {line.split()[5].removeprefix("."): " ".join(line.split()[:2]) for line in lines if not line.startswith("d")}

    def test_each_is_what_debian_expects(self) -> None:
        assert VERSION
        made = sorted(path.name.split("_")[0] for path in self.folder.glob("*.deb"))
        self.assertEqual(made, sorted(PACKAGES))
        for name in PACKAGES:
            self.assertEqual(self.field(name, "Version"), VERSION.group(1))
            self.assertIn(f"/usr/share/doc/{name}/copyright", self.files(name))
            for path, mode in self.files(name).items():
                self.assertIn(mode, ("-rw-r--r-- root/root", "-rwxr-xr-x root/root", "lrwxrwxrwx root/root"), path)
                self.assertFalse(path.startswith("/usr/local"), path)

    def test_each_has_its_own(self) -> None:
        named = {package: {path for path in self.files(package) if "/doc/" not in path} for package in PACKAGES}
        self.assertEqual(
            named["gradgated"],
            {
                "/usr/bin/gradgated",
                "/etc/gradgate/gradgated.flags",
                "/lib/systemd/system/gradgated.service",
                "/usr/lib/sysusers.d/gradgate.conf",
                "/usr/lib/tmpfiles.d/gradgate.conf",
                "/usr/share/man/man8/gradgated.8",
            },
        )
        self.assertEqual(
            named["gradgatectl"],
            {
                "/usr/bin/gradgatectl",
                "/usr/share/man/man1/gradgatectl.1",
                "/usr/share/bash-completion/completions/gradgatectl",
                "/usr/share/fish/vendor_completions.d/gradgatectl.fish",
                "/usr/share/zsh/site-functions/_gradgatectl",
            },
        )
        library = "/" + str(self.library.relative_to(self.root))
        version = self.field("libgradgate1", "Version")
        self.assertEqual(named["libgradgate1"], {f"{library}/libgradgate.so.1", f"{library}/libgradgate.so.{version}"})
        headers = {f"/usr/include/gradgate/{path.name}" for path in (ROOT / "shim/include/gradgate").iterdir()}
        self.assertEqual({path for path in named["libgradgate-dev"] if path.startswith("/usr/include/")}, headers)
        rest = {path.removeprefix(library) for path in named["libgradgate-dev"] - headers}
        self.assertLessEqual({"/libgradgate.so", "/pkgconfig/gradgate.pc"}, rest)
        self.assertLessEqual({"/cmake/gradgate/gradgateConfig.cmake", "/cmake/gradgate/gradgateConfigVersion.cmake"}, rest)
        soname = must("readelf", "--dynamic", self.library / "libgradgate.so.1", LC_ALL="C")
        self.assertIn("Library soname: [libgradgate.so.1]", soname)

    def test_dependencies_are_what_the_programs_link(self) -> None:
        self.assertRegex(self.field("gradgated", "Depends"), r"libgrpc\+\+[\w.]+ \(>= .*libprometheus-cpp")
        self.assertIn("systemd-standalone-sysusers | systemd-sysusers", self.field("gradgated", "Depends"))
        self.assertIn("libgrpc++", self.field("gradgatectl", "Depends"))
        self.assertRegex(self.field("libgradgate1", "Depends"), r"libc6 \(>= .*libgloo")
        for heavy in ("grpc", "protobuf", "absl"):
            self.assertNotIn(heavy, self.field("libgradgate1", "Depends"), "nothing of the daemon's comes into a trainer")
        version = self.field("libgradgate1", "Version")
        self.assertEqual(self.field("libgradgate-dev", "Depends"), f"libgradgate1 (= {version})")
        must("dpkg-deb", "--control", self.package("libgradgate1"), self.folder / "control")
        shlibs = (self.folder / "control" / "shlibs").read_text(encoding="utf-8")
        self.assertEqual(shlibs.split(), ["libgradgate", "1", "libgradgate1", "(>=", f"{version})"])

    def test_scripts_of_the_service(self) -> None:
        control = self.folder / "daemon-control"
        must("dpkg-deb", "--control", self.package("gradgated"), control)
        self.assertEqual((control / "conffiles").read_text(encoding="utf-8"), "/etc/gradgate/gradgated.flags\n")
        for script in ("postinst", "prerm", "postrm"):
            self.assertEqual((control / script).stat().st_mode & 0o777, 0o755)
            must("sh", "-n", control / script)

    def test_programs_of_the_packages_run(self) -> None:
        for program in ("gradgated", "gradgatectl"):
            self.assertRegex(must(self.root / "usr/bin" / program, "--version"), r"^gradgat\w+ [0-9.]+\n$")
            self.assertNotRegex(must("readelf", "--dynamic", self.root / "usr/bin" / program), "R(UN)?PATH")

    def test_find_package_and_its_versions(self) -> None:
        source, build = self.folder / "user", self.folder / "user-build"
        source.mkdir()
        (source / "user.cc").write_text(PROGRAM, encoding="utf-8")
        generator = os.environ.get("CMAKE_GENERATOR", "Ninja" if shutil.which("ninja") else "Unix Makefiles")
        configure = ("cmake", "-S", source, "-B", build, "-G", generator, f"-DCMAKE_PREFIX_PATH={self.root}/usr")
        (source / "CMakeLists.txt").write_text(PROJECT.format(asked="1.0"), encoding="utf-8")
        refused = run(*configure)
        self.assertNotEqual(refused.returncode, 0)
        version = self.field("libgradgate-dev", "Version")
        self.assertIn(f"no version of it fits: {version}", refused.stderr)
        (source / "CMakeLists.txt").write_text(PROJECT.format(asked=version), encoding="utf-8")
        must(*configure)
        must("cmake", "--build", build)
        self.assertEqual(must(build / "user").strip(), version)

    def test_pkg_config(self) -> None:
        tell = {"PKG_CONFIG_LIBDIR": str(self.library / "pkgconfig"), "PKG_CONFIG_SYSROOT_DIR": ""}
        self.assertEqual(must("pkg-config", "--modversion", "gradgate", **tell).strip(), self.field("libgradgate-dev", "Version"))
        flags = must("pkg-config", "--cflags", "--libs", "gradgate", **tell).split()
        (self.folder / "user.cc").write_text(PROGRAM, encoding="utf-8")
        program = self.folder / "user-pkg-config"
        must("c++", "-std=c++20", self.folder / "user.cc", "-o", program, *flags)
        said = must(program, LD_LIBRARY_PATH=str(self.library))
        self.assertEqual(said.strip(), self.field("libgradgate1", "Version"))


class Image(unittest.TestCase):
    """deploy/docker: what can be told without building it."""

    def test_dockerfile_calls_the_scripts_and_drops_rights(self) -> None:
        folder = ROOT / "deploy" / "docker"
        text = (folder / "Dockerfile").read_text(encoding="utf-8")
        for script in ("build.sh", "install.sh"):
            self.assertIn(f"/{script} /packages", text)
            self.assertTrue(os.access(folder / script, os.X_OK))
        (user,) = re.findall(r"^USER (.*)$", text, re.MULTILINE)
        install = (folder / "install.sh").read_text(encoding="utf-8")
        self.assertIn(f"--gid {user.split(':')[1]} ", install)
        self.assertIn(f"--uid {user.split(':')[0]} ", install)
        self.assertRegex(text.splitlines()[-1], r'^ENTRYPOINT \["/usr/bin/gradgated"\]$')

    def test_the_build_gets_what_setup_knows(self) -> None:
        known = re.search(r"packages=\((.*?)\)", (ROOT / "tests/tidy/setup.sh").read_text(encoding="utf-8"), re.DOTALL)
        script = (ROOT / "deploy/docker/build.sh").read_text(encoding="utf-8").replace("\\\n", " ")
        taken = re.search(r"apt-get install --yes --no-install-recommends (.*)", script)
        assert known and taken
        self.assertLessEqual(set(taken.group(1).split()), set(known.group(1).split()))

    def test_nothing_ignored_by_git_goes_to_docker(self) -> None:
        ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
        for line in (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines():
            self.assertTrue({line.strip("/"), f"**/{line.strip('/')}"} & set(ignored), line)


if __name__ == "__main__":
    unittest.main(verbosity=2)
