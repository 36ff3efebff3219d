"""Removes one rule of the protocol after the other, and shows the schedule in which the simulation catches that.

    mutants.py [--compiler c++] [--jobs 2] [--only NAME] [--schedules | --markdown]

Each mutant is a copy of one file with one replacement, compiled into a policy_sim of its own. Fails if a replacement no longer applies, if
what it makes does not compile, or if no schedule catches it. Standard library alone.
"""

import argparse
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import textwrap
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[2]
REAL = ("shim/core/ballot.cc", "shim/core/policy_stage.cc", "shim/core/window_engine.cc", "shim/link/frame_reader.cc")
OURS = tuple(
    f"tests/sim/{name}.cc"
    for name in ("book", "collectives", "ledger_rank", "nodes", "rank", "scenario", "session_rank", "sim_main", "small_scope", "world")
)
FLAGS = ("-std=c++20", "-O1", "-g0")
SEEDS = 30_000
SHORTEST = 40  # of so many schedules that catch it, the shortest is shown


class Mutant(NamedTuple):
    name: str
    rule: str  # that is removed
    file: str
    old: str
    new: str


STAGE, BALLOT, BALLOT_H = "shim/core/policy_stage.cc", "shim/core/ballot.cc", "shim/core/ballot.h"
ENGINE, ENGINE_H, FRAMES = "shim/core/window_engine.cc", "shim/core/window_engine.h", "shim/link/frame_reader.cc"
RANK, SESSION, LEDGER = "tests/sim/rank.cc", "tests/sim/session_rank.cc", "tests/sim/ledger_rank.cc"

MUTANTS = (
    # Adoption.
    Mutant("older", "only a version above all that is known is taken", STAGE, "policy.version <= known", "policy.version == 0"),
    Mutant(
        "above_staged",
        "nothing older than what is staged or accepted takes its place",
        STAGE,
        "std::max({in_force_.version, staged_.version, accepted_.version, unvetted_.version, rejected_version_})",
        "std::max({in_force_.version, unvetted_.version, rejected_version_})",
    ),
    Mutant(
        "version",
        "the version is the same on all ranks",
        STAGE,
        "min == own && max == own",
        "min.content_hash == own.content_hash && max.content_hash == own.content_hash",
    ),
    Mutant(
        "content",
        "the content is the same on all ranks",
        STAGE,
        "min == own && max == own",
        "min.version == own.version && max.version == own.version",
    ),
    Mutant("minimum", "all ranks have it, not some", STAGE, "min == own && max == own", "max == own"),
    Mutant("maximum", "no rank has a newer one", STAGE, "min == own && max == own", "min == own"),
    Mutant("nothing", "nothing is not agreed on", STAGE, "own.version != 0 && min == own", "min == own"),
    Mutant("accepted_waits", "what is accepted waits for the next ballot", STAGE, "accepted_ = unvetted_;", "staged_ = unvetted_;"),
    Mutant("vote_stands", "a vote stands until it is read", STAGE, " && !vote_unread_", ""),
    Mutant("agreed_stays", "what was agreed is not replaced before it takes effect", STAGE, " && !agreed_)", ")"),
    Mutant(
        "next_window",
        "what was agreed takes effect with the next window, not inside this one",
        STAGE,
        "max == own;\n",
        "max == own;\n  if (agreed_) in_force_ = staged_;\n",
    ),
    Mutant(
        "agreed_once",
        "an agreement is used up by taking effect",
        STAGE,
        "  adopted_window_ = next_window;\n  agreed_ = false;",
        "  adopted_window_ = next_window;",
    ),
    Mutant(
        "staged_once",
        "what is in force is staged no more",
        STAGE,
        "  in_force_ = staged_;\n  staged_ = SyncPolicy{};",
        "  in_force_ = staged_;",
    ),
    Mutant(
        "accepted_once",
        "what is staged waits no more",
        STAGE,
        "    staged_ = accepted_;\n    accepted_ = SyncPolicy{};",
        "    staged_ = accepted_;",
    ),
    Mutant("voted_for", "what was accepted is voted for", STAGE, "if (accepted_.version != 0 &&", "if (staged_.version == 0 &&"),
    Mutant("alone", "a rank alone agrees with itself", STAGE, "if (alone) {", "if (false) {"),
    # The ballot.
    Mutant(
        "negatives",
        "the second half of a ballot are negatives, so that their maximum is the minimum",
        BALLOT,
        "Negative(fields[i]);",
        "fields[i];",
    ),
    Mutant("all_close", "a window is over when all ranks say so", BALLOT_H, "return min_.closes > 0;", "return max_.closes > 0;"),
    Mutant("any_contributes", "all reduce if one contributes", BALLOT_H, "return max_.contributes > 0;", "return min_.contributes > 0;"),
    Mutant("same_window", "ranks in different windows end the job", BALLOT_H, "min_.window != max_.window || ", ""),
    Mutant("same_round", "ranks in different rounds end the job", BALLOT_H, "min_.round != max_.round || ", ""),
    Mutant("same_mode", "ranks in different modes end the job", BALLOT_H, " || min_.mode != max_.mode", ""),
    # The frame.
    Mutant(
        "sound_content",
        "a content hash is that of the content",
        FRAMES,
        "if (policy.content_hash != PolicyContentHash(policy))",
        "if (false)",
    ),
    Mutant("signed_version", "a version fits the ballot's signed numbers", FRAMES, " || policy.version >> 63 != 0", ""),
    # The window.
    Mutant(
        "late",
        "an open window that holds unreduced gradients is reduced before the step",
        ENGINE,
        "pending_ > 0 ? Action::kReduceLate : Action::kProceed",
        "Action::kProceed",
    ),
    Mutant(
        "empty_late",
        "a rank that brought nothing takes part late",
        ENGINE,
        "      return {Action::kReduceLate, Refusal::kNone};\n    case State::kOpen:",
        "      return {Action::kProceed, Refusal::kNone};\n    case State::kOpen:",
    ),
    Mutant("pending", "a micro-step that did not reduce leaves its window pending", ENGINE_H, "    ++pending_;\n", ""),
    Mutant(
        "not_reduced",
        "a boundary in which nothing was reduced leaves its window pending",
        ENGINE_H,
        "void NotReduced() { reducing_ = reducing_ && state_ != State::kInMicroStep; }",
        "void NotReduced() {}",
    ),
    Mutant(
        "outrun",
        "a window goes on after its predicted end",
        ENGINE_H,
        "return state_ == State::kReduced && closing_ && config_.accumulate == 0 && counts_.micro_steps == config_.predicted;",
        "return false;",
    ),
    # What a session and a ledger must do with them: replacements in the simulated ones.
    Mutant(
        "others_rounds",
        "a rank that has closed takes part until all have",
        SESSION,
        "if (!window_.all_closed) {",
        "if (window_.rounds == 0) {",
    ),
    Mutant(
        "pairs",
        "a rank without a contribution issues the buckets of those that have one",
        SESSION,
        "if (!result.any_contributes()) return FinishRound();",
        "if (!contributes_) return FinishRound();",
    ),
    Mutant(
        "ballot_first",
        "the ballot is issued before the first bucket",
        SESSION,
        "    StartRound(true, engine_.closing());",
        "    if (settings_.buckets > 1) LaunchBucket(0);\n    StartRound(true, engine_.closing());",
    ),
    Mutant(
        "reads_first",
        "a rank without a contribution reads the ballot before it issues buckets",
        SESSION,
        "    StartRound(brings_data, true);\n",
        "    StartRound(brings_data, true);\n    if (!brings_data) LaunchBucket(0);\n",
    ),
    Mutant(
        "closed_is_closed",
        "a window that this rank alone would not step is over for its policy too",
        RANK,
        "= stage_.WindowClosed(",
        "= !refused_alone_ && stage_.WindowClosed(",
    ),
    Mutant(
        "equal_framework",
        "where ranks bring different numbers, a framework takes no policy that reduces in every micro-step",
        RANK,
        "s_.path == Path::kLedger && s_.variable",
        "false",
    ),
)

# Rules whose removal no schedule can show, and why.
EQUIVALENT = (
    Mutant(
        "agreed_kept",
        "a later ballot of the window does not take an agreement back: while it stands every rank votes for the same again, so each later "
        "ballot says the same",
        STAGE,
        "agreed_ |=",
        "agreed_ =",
    ),
    Mutant(
        "rejected_known",
        "what was rejected is not looked at again: it would be rejected again, for the same reason",
        STAGE,
        ", unvetted_.version, rejected_version_}",
        ", unvetted_.version}",
    ),
    Mutant(
        "reduced_late",
        "a late reduction leaves nothing pending: what it left would be met in an open window alone, which has something pending of "
        "its own, or has reduced since and forgotten it",
        ENGINE,
        "  pending_ = 0;\n  closing_ = false;\n  counts_.last",
        "  closing_ = false;\n  counts_.last",
    ),
)


class Build:
    """Objects of the unchanged simulation, and which files each was made from."""

    def __init__(self, compiler: str, folder: pathlib.Path) -> None:
        self.compiler = compiler
        self.folder = folder
        unity = folder / "unity.cc"
        unity.write_text("".join(f'#include "{name}"\n' for name in OURS))
        self.sources = {name: ROOT / name for name in REAL} | {"unity.cc": unity}

    def compile(self, name: str, includes: list[pathlib.Path], source: pathlib.Path, out: pathlib.Path) -> None:
        paths = [f"-I{path}" for path in includes]
        command = [self.compiler, *FLAGS, *paths, "-MMD", "-MF", f"{out}.d", "-c", str(source), "-o", str(out)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        if done.returncode:
            raise RuntimeError(f"{name} does not compile:\n{done.stderr}")

    def object_of(self, name: str) -> pathlib.Path:
        return self.folder / (name.replace("/", "_") + ".o")

    def compile_all(self) -> None:
        for name, source in self.sources.items():
            self.compile(name, [ROOT], source, self.object_of(name))

    def made_from(self, name: str) -> set[str]:
        text = pathlib.Path(f"{self.object_of(name)}.d").read_text()
        return {os.path.relpath(path, ROOT) for path in re.split(r"[\s\\]+", text.split(":", 1)[1]) if path}

    def link(self, objects: list[pathlib.Path], out: pathlib.Path) -> None:
        subprocess.run([self.compiler, *map(str, objects), "-o", str(out)], check=True, timeout=600)

    def mutated(self, mutant: Mutant) -> pathlib.Path:
        """The policy_sim in which the rule is missing."""
        text = (ROOT / mutant.file).read_text()
        if text.count(mutant.old) != 1:
            raise RuntimeError(f"the text to replace is {text.count(mutant.old)} times in {mutant.file}; renew the mutant")
        folder = self.folder / mutant.name
        changed = folder / mutant.file
        changed.parent.mkdir(parents=True)
        changed.write_text(text.replace(mutant.old, mutant.new))
        objects = []
        for name, source in self.sources.items():
            if mutant.file not in self.made_from(name):
                objects.append(self.object_of(name))
                continue
            objects.append(folder / self.object_of(name).name)
            self.compile(mutant.name, [folder, ROOT], changed if name == mutant.file else source, objects[-1])
        self.link(objects, folder / "policy_sim")
        return folder / "policy_sim"


class Catch(NamedTuple):
    seed: int
    invariant: str
    text: str
    schedule: str
    small: str = ""  # the same of a small job, by the exhaustive mode, where that finds one


def run(program: pathlib.Path) -> Catch | None:
    """What the simulation has to say; None: it notices nothing."""
    command = [str(program), f"--seeds={SEEDS}", f"--shortest={SHORTEST}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode == 0:
        return None
    lines = done.stdout.rstrip("\n").split("\n")
    found = re.fullmatch(r"seed (\d+) breaks ([\w-]+): (.*)", lines[-1])
    if not found:
        raise RuntimeError(f"policy_sim ended with {done.returncode}: {done.stdout[-2000:]}{done.stderr}")
    return Catch(int(found[1]), found[2], found[3], "\n".join(lines[:-1]))


def explore(program: pathlib.Path) -> str:
    done = subprocess.run([str(program), "--exhaustive"], capture_output=True, text=True, timeout=600, check=False)
    if done.returncode == 0:
        return ""
    return "\n".join(line for line in done.stdout.split("\n") if line and not line.endswith(": holds"))


def judge(build: Build, mutant: Mutant) -> tuple[Catch | None, str]:
    """What caught it; and what is wrong, or nothing."""
    try:
        program = build.mutated(mutant)
        catch = run(program)
        if catch and mutant.file == STAGE:
            catch = catch._replace(small=explore(program))
    except (RuntimeError, subprocess.SubprocessError) as error:
        return None, str(error)
    if mutant in EQUIVALENT:
        return catch, f"listed as equivalent, and caught by seed {catch.seed}: list it with the others" if catch else ""
    return catch, "" if catch else f"survives {SEEDS} schedules"


def told(mutant: Mutant, catch: Catch | None, wrong: str, schedules: bool, markdown: bool) -> str:
    if markdown:
        row = f"| `{mutant.name}` | {mutant.rule} | `{pathlib.Path(mutant.file).name}` |"
        if catch is None:
            return f"{row} | | | {wrong} |"
        return f"{row} {catch.seed} | {'yes' if catch.small else ''} | {catch.invariant} | {catch.text} |"
    if wrong:
        return f"{mutant.name}: {wrong}"
    if catch is None:
        return f"{mutant.name}: as expected, nothing shows it: {mutant.rule}"
    head = f'{mutant.name}: without "{mutant.rule}" seed {catch.seed} breaks {catch.invariant}: {catch.text}'
    if not schedules:
        return head
    small = "\n  of a small job:\n" + textwrap.indent(catch.small.rstrip(), "    ") if catch.small else ""
    return head + "\n" + textwrap.indent(catch.schedule, "    ") + small


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compiler", default=os.environ.get("CXX", "c++"))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", default="")
    parser.add_argument("--schedules", action="store_true", help="print the schedule that catches each")
    parser.add_argument("--markdown", action="store_true", help="print the table of README.md")
    o = parser.parse_args()
    chosen = [m for m in (*MUTANTS, *EQUIVALENT) if not o.only or m.name == o.only]
    if not chosen:
        print(f"no mutant is named {o.only}", file=sys.stderr)
        return 2
    failed = 0
    with tempfile.TemporaryDirectory(prefix="gradgate-mutants-") as folder, concurrent.futures.ThreadPoolExecutor(o.jobs) as pool:
        build = Build(o.compiler, pathlib.Path(folder))
        build.compile_all()
        for mutant, (catch, wrong) in zip(chosen, pool.map(lambda m: judge(build, m), chosen), strict=True):
            failed += bool(wrong)
            print(told(mutant, catch, wrong, o.schedules, o.markdown), flush=True)
    print(f"{len(chosen) - failed} of {len(chosen)} mutants are as expected", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
