"""Includes point one way: the levels and columns of the architecture, as a table.

A file may include its own folder, lower levels of its own column, and level 0. Folders of one level do not see each other.
"""

import re

from tree import Tree

# folder: (column, level). A file belongs to the longest folder that matches.
FOLDERS = {
    "proto/shm": ("proto", 0),
    "proto/link": ("proto", 0),
    "proto/gradgate": ("proto", 0),
    "proto/etcdserverpb": ("proto", 0),
    "shim/core": ("shim", 1),
    "shim/reduce": ("shim", 2),
    "shim/stats": ("shim", 2),
    "shim/link": ("shim", 2),
    "shim/capi": ("shim", 3),
    "shim/include": ("shim", 3),
    "shim/python": ("shim", 4),
    "shim/torch": ("shim", 4),
    "client/planner": ("client", 2),
    "client": ("client", 3),
    "client/cli": ("client", 4),
    "daemon/node": ("daemon", 2),
    "daemon/store": ("daemon", 2),
    "daemon/store/etcd": ("daemon", 3),
    "daemon/planner": ("daemon", 2),
    "daemon/doctor": ("daemon", 3),
    "daemon/policy": ("daemon", 3),
    "daemon/rpc": ("daemon", 4),
    "daemon/metrics": ("daemon", 4),
    "daemon/main": ("daemon", 5),
}
# What the table alone would forbid: who may include whom.
CROSSINGS = {
    ("daemon/rpc", "client"),
    ("daemon/store", "daemon/node"),  # leaves alone: the mutex, the check of text
    ("shim/capi", "shim/include"),
    # The planner is arithmetic that a daemon does for a job, and the command line for numbers alone, with no daemon there.
    ("daemon/planner", "client/planner"),
    ("daemon/rpc", "client/planner"),
}
# These see everything; nothing else sees them.
TOP = ("tests", "bench", "examples", "deploy")

# Other people's headers: the folders that may include them. TOP always may.
LIBRARIES = {
    "gradgate/store/v1/": ("daemon/",),
    "etcdserverpb/": ("daemon/store/etcd/",),
    "absl/": ("daemon/", "client/"),
    "google/protobuf/": ("daemon/", "client/"),
    "gradgate/v1/": ("daemon/", "client/"),
    "grpcpp/": ("daemon/rpc/", "daemon/store/etcd/", "client/"),
    "grpc/": ("daemon/rpc/", "daemon/store/etcd/", "client/"),
    "prometheus/": ("daemon/metrics/",),
    "gloo/": ("shim/reduce/gloo/",),
    "nccl.h": ("shim/reduce/nccl/",),
    "CLI/": ("client/cli/",),
    "nlohmann/": ("client/cli/",),
    "openssl/": ("client/", "daemon/rpc/"),
    "torch/": ("shim/torch/", "shim/include/gradgate/torch"),
    "ATen/": ("shim/torch/", "shim/include/gradgate/torch"),
    "c10/": ("shim/torch/", "shim/include/gradgate/torch"),
    "gtest/": (),
    "gmock/": (),
    "benchmark/": (),
}
RPC_ONLY = ("grpcpp/", "grpc/")  # also every *.grpc.pb.h; not for client/cli, which stands on the client library

STANDARD = re.compile(r"[a-z_0-9]+")  # a C++ standard header has neither dot nor slash
# The state machines take time and events as arguments.
NOT_IN_CORE = re.compile(r"chrono|ctime|time\.h|thread|sys/.*|unistd\.h|netinet/.*|arpa/.*|netdb\.h|poll\.h|cuda.*|nccl.*")
PUBLIC_C = "shim/include/gradgate/gradgate.h"
PUBLIC_CPP = "shim/include/gradgate/gradgate.hpp"

INCLUDE = re.compile(r'\s*#\s*include\s*([<"])([^>"]+)[>"]')


def folder_of(path: str) -> str | None:
    fitting = [f for f in FOLDERS if path.startswith(f + "/")]
    return max(fitting, key=len) if fitting else None


def target_of(name: str) -> str:
    """The path in the tree that an include names; the public headers are installed without their folder."""
    return f"shim/include/{name}" if re.fullmatch(r"gradgate/[^/]+\.(h|hpp)", name) else name


def foreign(path: str, name: str) -> str | None:
    """What is wrong with including a library's header, or None."""
    for prefix, folders in LIBRARIES.items():
        if not name.startswith(prefix):
            continue
        is_rpc = prefix in RPC_ONLY or name.endswith(".grpc.pb.h")
        if is_rpc and path.startswith("client/cli/"):
            return f"gRPC header {name} in client/cli; use the client library"
        allowed = LIBRARIES["grpcpp/"] if is_rpc else folders
        if not path.startswith(allowed):
            where = ", ".join(allowed) if allowed else "tests and bench"
            return f"{name} may be included in {where} only; move the code there, behind a header without it"
    return None


def own(path: str, target: str) -> str | None:
    """What is wrong with including one of our own headers, or None."""
    if target.startswith(tuple(f"{t}/" for t in TOP)):
        return f"{target} belongs to tests, bench or examples; nothing below includes those"
    here, there = folder_of(path), folder_of(target)
    if here is None or there is None:
        return f"no level is declared for {path if here is None else target}; add its folder to the table in tests/tidy/layers.py"
    if here == there or (here, there) in CROSSINGS:
        return None
    (column, level), (other, lower) = FOLDERS[here], FOLDERS[there]
    if lower == 0 or (column == other and lower < level):
        return None
    if column != other:
        return f"{here} may not see {there}: columns meet only in proto; move what is shared to proto or pass it in"
    return f"{here} (level {level}) may not see {there} (level {lower}); turn the arrow round with an interface in the lower one"


def special(path: str, name: str) -> str | None:
    if path == PUBLIC_C and name not in ("stdint.h", "stddef.h"):
        return f"gradgate.h includes {name}; only stdint.h and stddef.h are allowed in the C ABI"
    if path == PUBLIC_CPP and not (STANDARD.fullmatch(name) or name == "gradgate/gradgate.h"):
        return f"gradgate.hpp includes {name}; only the standard library and gradgate/gradgate.h are allowed"
    if path.startswith(("proto/shm/", "proto/link/")) and not (STANDARD.fullmatch(name) or folder_of(name) == folder_of(path)):
        return f"{name} in the specified bytes; only the C++ standard library is allowed there"
    if path.startswith("shim/core/") and NOT_IN_CORE.fullmatch(name):
        return f"{name} in shim/core, which sees no clock, thread, socket or device; pass the value in"
    return None


def check(tree: Tree) -> list[str]:
    found = []
    for path in tree.matching(".cc", ".h", ".hpp", ".c", ".inc"):
        if path.startswith(tuple(f"{t}/" for t in TOP)):
            continue
        for number, line in tree.lines(path):
            if not (match := INCLUDE.match(line)):
                continue
            quote, name = match.groups()
            target = target_of(name)
            wrong = special(path, name) or foreign(path, name)
            is_library = name.startswith(tuple(LIBRARIES))
            is_ours = target in tree.files or folder_of(target) is not None or target.startswith(tuple(f"{t}/" for t in TOP))
            if wrong is None and is_ours and not is_library:
                wrong = own(path, target)
            elif wrong is None and quote == '"' and not is_library:
                wrong = f'"{name}" is neither a path from the repository root nor a library in tests/tidy/layers.py; write the whole path'
            if wrong:
                found.append(f"{path}:{number}: {wrong}")
    return found
