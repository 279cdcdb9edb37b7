"""The C++ compiler that AOTInductor builds its library with, if there is one."""

import os
import shutil


def find_compiler() -> str | None:
    """Return the path of the compiler that CXX names, or else of the first usual one; None if it is not there."""
    wanted = _wanted()
    return next((path for path in map(shutil.which, wanted) if path is not None), None)


def missing_for_aot() -> list[str]:
    """Say what is missing here to build by AOTInductor; empty if nothing is."""
    missing = []
    if os.name != "posix":
        missing.append("it is run on Linux and macOS only")
    if find_compiler() is None:
        missing.append(f"there is no C++ compiler ({', '.join(_wanted())})")
    return missing


def _wanted() -> list[str]:
    return [os.environ["CXX"]] if os.environ.get("CXX") else ["g++", "c++", "clang++"]
