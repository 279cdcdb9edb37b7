"""Builds both consumers once: the C++ program, and an environment for the Python one that holds no torch."""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from filelock import FileLock

from tests.examples.consumers import ROOT, Consumer, change_metadata, copy_artifact
from tests.examples.tagger import make_tagger
from tests.examples.trained import train_tagger

HEADERS = {
    "sentencepiece_processor.h": "SentencePiece (libsentencepiece-dev)",
    "nlohmann/json.hpp": "nlohmann-json (nlohmann-json3-dev)",
    "openssl/evp.h": "OpenSSL (libssl-dev)",
}


@pytest.fixture(scope="session")
def building() -> FileLock:
    """Held while a consumer is built: the tests may run in several processes."""
    (ROOT / "build").mkdir(exist_ok=True)
    return FileLock(ROOT / "build" / "examples.lock")


@pytest.fixture(scope="session")
def cpp_consumer(building: FileLock) -> Consumer:
    with building:
        return build_cpp_consumer()


def build_cpp_consumer() -> Consumer:
    folder = build_cpp(
        ROOT / "examples" / "cpp", ROOT / "build" / "examples-cpp", build_type="Release", flags="-Werror"
    )
    return Consumer(name="cpp", command=[str(folder / "classify")], model="model.pt", runtime="libtorch")


@pytest.fixture(scope="session")
def sanitized(building: FileLock) -> Path:
    """The folder of three programs that stop at the first fault: classify (in consumer/), library and planted."""
    source = ROOT / "tests" / "examples" / "sanitized"
    with building:
        return build_cpp(source, ROOT / "build" / "examples-cpp-sanitized", build_type="Debug", flags="-Werror -O1")


@pytest.fixture(scope="session")
def python_consumer(building: FileLock) -> Consumer:
    with building:
        return build_python_consumer()


def build_python_consumer() -> Consumer:
    folder = ROOT / ".venv-examples"
    requirements = ROOT / "examples" / "python" / "requirements.txt"
    constraints = ROOT / "constraints.txt"
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    # The environment also ages with the Python that made it.
    wanted = hashlib.sha256(requirements.read_bytes() + constraints.read_bytes() + sys.version.encode()).hexdigest()
    stamp = folder / "requirements.sha256"
    if not stamp.is_file() or stamp.read_text("utf-8") != wanted:
        run(sys.executable, "-m", "venv", "--clear", folder)
        run(
            *(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"),
            *("--requirement", requirements, "--constraint", constraints),
        )
        stamp.write_text(wanted, "utf-8")
    return Consumer(
        name="python",
        command=[str(python), str(ROOT / "examples" / "python" / "classify.py")],
        model="model.onnx",
        runtime="onnxruntime",
    )


@pytest.fixture(scope="session")
def strict(artifact: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same artifact with a temperature and a threshold that some texts reach and some do not."""
    copy = copy_artifact(artifact, tmp_path_factory.mktemp("strict"))
    change_metadata(copy, lambda metadata: metadata.update(temperature=0.7, threshold=0.3))
    return copy


@pytest.fixture(scope="session")
def tagger(artifact: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An artifact that tags words."""
    return make_tagger(artifact, tmp_path_factory.mktemp("tagger"))


@pytest.fixture(scope="session")
def trained_tagger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An artifact that tags words and has learned to, whose answers depend on every word around."""
    return train_tagger(tmp_path_factory.mktemp("trained-tagger"))


@pytest.fixture(params=["cpp", "python"])
def consumer(request: pytest.FixtureRequest) -> Consumer:
    found: Consumer = request.getfixturevalue(f"{request.param}_consumer")
    return found


def build_cpp(source: Path, folder: Path, *, build_type: str, flags: str) -> Path:
    if missing := missing_for_cpp():
        pytest.skip(f"the C++ consumer needs {', '.join(missing)}")
    prefix = torch.utils.cmake_prefix_path
    # CMake's cache would keep the libtorch of another environment.
    if (folder / "torch").is_file() and (folder / "torch").read_text("utf-8") != prefix:
        shutil.rmtree(folder)
    run(
        *("cmake", "-S", source, "-B", folder, f"-DCMAKE_BUILD_TYPE={build_type}", f"-DCMAKE_CXX_FLAGS={flags}"),
        f"-DCMAKE_PREFIX_PATH={prefix}",
    )
    (folder / "torch").write_text(prefix, "utf-8")
    run("cmake", "--build", folder, "--parallel", os.cpu_count() or 1)
    return folder


def missing_for_cpp() -> list[str]:
    """Name what this machine lacks for the C++ consumer; with all of it here, a build that fails is a failure."""
    missing = [] if shutil.which("cmake") else ["cmake"]
    if not (shutil.which("make") or os.environ.get("CMAKE_GENERATOR")):
        missing.append("make")
    compiler = os.environ.get("CXX") or next(filter(shutil.which, ("c++", "g++", "clang++")), None)
    if compiler is None:
        return [*missing, "a C++ compiler"]
    if torch.version.cuda and not shutil.which("nvcc"):
        missing.append("the CUDA toolkit, because this torch is built for CUDA, or a torch for the CPU")
    for header, library in HEADERS.items():
        source = f"#if !__has_include(<{header}>)\n#error\n#endif\n"
        command = [*compiler.split(), "-E", "-x", "c++", "-"]
        if subprocess.run(command, input=source.encode(), capture_output=True, check=False).returncode != 0:
            missing.append(library)
    return missing


def run(*command: object) -> None:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}\n{done.stderr}"
