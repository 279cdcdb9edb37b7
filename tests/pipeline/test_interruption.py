"""`ferry train` ended from outside, in processes of their own: kills, signals, full and read-only disks."""

import hashlib
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

import pipeline.training
from pipeline.cli import cli
from pipeline.interruption import Interruption
from pipeline.run import ROOT
from pipeline.train import train
from pipeline.training import DivergedError

CONFIG = """
name = "small"
[tokenizer]
vocab_size = 400
[model]
max_len = 16
dim = 32
num_layers = 1
num_heads = 2
hidden_dim = 64
[training]
threads = 1
epochs = 2
batch_tokens = 256
learning_rate = 3e-3
checkpoint_steps = 10
"""

# A twentieth of the data is enough here. A shell's background job has SIGINT ignored, and so would its children.
MAIN = """
import dataclasses, signal, pipeline.data.own
signal.signal(signal.SIGINT, signal.default_int_handler)
load = pipeline.data.own.load_dataset
def load_some(*args):
    dataset = load(*args)
    splits = {name: getattr(dataset, name) for name in ("train", "validation", "test")}
    some = {
        name: dataclasses.replace(split, inputs=split.inputs[::20], targets=split.targets[::20])
        for name, split in splits.items()
    }
    return dataclasses.replace(dataset, **some)
pipeline.data.own.load_dataset = load_some
from pipeline.cli import main
main()
"""

# The process kills itself in the midst of something.
KILL = "os.kill(os.getpid(), signal.SIGKILL)"
KILLED = {
    # Half of a state is written.
    "half": f"""
import os, signal, pipeline.checkpoint
whole = pipeline.checkpoint._write
def half(path, data):
    whole(path, data[: len(data) // 2])
    if len(data) > 1000:
        {KILL}
pipeline.checkpoint._write = half
""",
    # All of a state is written, beside the one before.
    "written": f"import os, signal\nos.replace = lambda *paths: {KILL}\n",
    # The state is in place, and nothing says so.
    "replaced": f"""
import os, signal, pipeline.checkpoint
replace = os.replace
def replaced(*paths):
    replace(*paths)
    {KILL}
os.replace = replaced
""",
    # The result is in place, and the state not yet removed.
    "finished": f"""
import os, signal, pipeline.checkpoint
pipeline.checkpoint.Checkpoint.remove = lambda self: {KILL}
""",
}


# What training says of its progress.
TOLD = ("  epoch ", "  going on ", "  stopped: ")


class Job:
    """A training in a folder of its own, of which processes are started, one after the other."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.command = ["ferry", "train", "--config", "c.toml", "--run", "my run"]
        self.run_folder = folder / "my run"
        (folder / "c.toml").write_text(CONFIG)

    def start(self, *options: str, prelude: str = "", **popen) -> subprocess.Popen:
        return subprocess.Popen(
            [sys.executable, "-c", prelude + MAIN, *self.command[1:], *options],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **popen,
        )

    def run(self, *options: str, **popen) -> subprocess.CompletedProcess:
        with self.start(*options, **popen) as process:
            stdout, stderr = process.communicate()
        # How good it is, is told as well.
        lines = [line for line in stderr.splitlines(keepends=True) if not line.startswith(TOLD)]
        return subprocess.CompletedProcess(process.args, process.returncode, stdout, "".join(lines))

    def log(self) -> list[str]:
        file = self.run_folder / "checkpoint" / "log.txt"
        return file.read_text().splitlines() if file.exists() else []

    def wait_for_lines(self, process: subprocess.Popen, more: int) -> None:
        """Wait until the log has so many lines more, or the process has ended."""
        wanted = len(self.log()) + more
        while len(self.log()) < wanted and process.poll() is None:
            time.sleep(0.002)

    def kill_in_a_write(self, process: subprocess.Popen) -> None:
        """Kill as soon as the file of a write appears; the log tells whether that was soon enough."""
        partial = self.run_folder / "checkpoint" / "state.safetensors.partial"
        while not partial.exists() and process.poll() is None:
            pass
        end(process)

    def weights(self) -> str:
        return hashlib.sha256((self.run_folder / "train" / "model.safetensors").read_bytes()).hexdigest()


def end(process: subprocess.Popen) -> None:
    process.kill()
    process.communicate()


@pytest.fixture
def job(tmp_path) -> Job:
    return Job(tmp_path)


@pytest.fixture(scope="session")
def unbroken(tmp_path_factory) -> str:
    job = Job(tmp_path_factory.mktemp("unbroken"))
    result = job.run()
    assert result.returncode == 0, result.stderr
    assert sorted(os.listdir(job.run_folder)) == ["train"]
    return job.weights()


def assert_finished(job: Job, unbroken: str, *options: str) -> None:
    result = job.run(*options)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("train: my run/train ")
    assert job.weights() == unbroken
    # State, lock and the hidden folders of the killed are gone.
    assert os.listdir(job.run_folder) == ["train"]
    assert (job.run_folder / "train" / "tensorboard").is_dir()


def test_killed_anywhere_it_gives_the_same_weights(job, unbroken):
    process = job.start()
    job.wait_for_lines(process, 4)
    end(process)
    assert job.log()
    for moment in ("half", "written"):
        assert job.run("--resume", prelude=KILLED[moment]).returncode == -signal.SIGKILL
        assert job.log()[-1].startswith("writing step ")
        assert (job.run_folder / "checkpoint" / "state.safetensors.partial").exists()
    assert job.run("--resume", prelude=KILLED["finished"]).returncode == -signal.SIGKILL
    assert {"train", "checkpoint"} <= set(os.listdir(job.run_folder))
    # It is current; what is left to do is to remove the state.
    assert_finished(job, unbroken)


@pytest.mark.slow
def test_ten_kills(tmp_path):
    generator = random.Random()
    config = CONFIG.replace("epochs = 2", "epochs = 12").replace("checkpoint_steps = 10", "checkpoint_steps = 6")
    jobs = []
    for name in ("unbroken", "killed"):
        (tmp_path / name).mkdir()
        jobs.append(Job(tmp_path / name))
        (tmp_path / name / "c.toml").write_text(config)
    unbroken, job = jobs
    assert unbroken.run().returncode == 0
    kills = within = 0
    while kills < 10 or not within:
        process = job.start("--resume")
        # The first line is the start; the others come in pairs, as a write begins and ends.
        job.wait_for_lines(process, generator.randint(1, 12))
        if kills % 2:
            job.kill_in_a_write(process)
        else:
            time.sleep(generator.uniform(0, 0.1))
            end(process)
        if process.returncode == 0:
            # It was quicker. That is a result as well, and another training begins.
            assert job.weights() == unbroken.weights()
            shutil.rmtree(job.run_folder)
        else:
            kills += 1
            within += job.log()[-1].startswith("writing")
    assert_finished(job, unbroken.weights(), "--resume")


def test_signals_stop_after_the_step_and_say_how_to_go_on(job, unbroken, monkeypatch):
    for number, options in ((signal.SIGINT, ()), (signal.SIGTERM, ("--resume",))):
        with job.start(*options) as process:
            job.wait_for_lines(process, 3)
            process.send_signal(number)
            stdout, stderr = process.communicate()
        assert process.returncode == 128 + number
        step = job.log()[-1].removeprefix("wrote step ")
        sentence = (
            f"ferry train: {number.name}: stopped at step {step}. "
            "Go on with `ferry train --config c.toml --run 'my run' --resume`.\n"
        )
        assert stdout == ""
        assert ("going on behind step" in stderr) == ("--resume" in options)
        assert [line for line in stderr.splitlines(keepends=True) if not line.startswith(TOLD)] == [sentence]
        assert os.listdir(job.run_folder) == ["checkpoint"]
    monkeypatch.chdir(job.folder)
    asked = CliRunner().invoke(cli, job.command[1:])
    assert (asked.exit_code, asked.stdout) == (2, "")
    assert asked.stderr == (
        f"ferry train: my run/checkpoint holds a training that was interrupted at step {step}. "
        "Go on with `ferry train --config c.toml --run 'my run' --resume`, "
        "or discard it with `ferry train --config c.toml --run 'my run' --restart`.\n"
    )
    changed = CONFIG.replace("threads = 1", "threads = 2").replace("checkpoint_steps = 10", "checkpoint_steps = 9")
    (job.folder / "c.toml").write_text(changed)
    refused = CliRunner().invoke(cli, [*job.command[1:], "--resume"])
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert refused.stderr == (
        f"ferry train: the training in my run/checkpoint, interrupted at step {step}, can't go on, because its weights "
        "would not be those of one run:\n"
        "  training.threads was 1 and is 2.\n"
        "Put that back and go on with `ferry train --config c.toml --run 'my run' --resume`, "
        "or discard it with `ferry train --config c.toml --run 'my run' --restart`.\n"
    )
    (job.folder / "c.toml").write_text(changed.replace("threads = 2", "threads = 1"))
    assert_finished(job, unbroken, "--resume")


def test_training_that_diverges_leaves_nothing_to_resume(job, monkeypatch):
    """It would diverge again, and a lower learning rate is another training."""

    def diverge(model, *, step, loss, norm):
        if step == 15:
            assert (job.run_folder / "checkpoint" / "state.safetensors").exists()
            raise DivergedError("diverged")

    monkeypatch.setattr(pipeline.training, "guard", diverge)
    with pytest.raises(DivergedError):
        train(job.folder / "c.toml", job.run_folder, show=False)
    assert not job.run_folder.exists()


def test_restart_and_resume_exclude_each_other(job, monkeypatch):
    monkeypatch.chdir(job.folder)
    result = CliRunner().invoke(cli, [*job.command[1:], "--resume", "--restart"])
    assert result.exit_code == 2
    assert result.stderr.endswith("Error: --resume and --restart exclude each other; give one of them.\n")
    assert not job.run_folder.exists()


def test_full_disk_keeps_the_state_before(job):
    # Room for the tokenizer's files, which come first, and not for a state.
    small = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))}
    result = job.run(**small)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == (
        "ferry train: the state of step 10 can't be written to my run: File too large. "
        "No earlier state is there: mend that, then go on with `ferry train --config c.toml --run 'my run'`.\n"
    )
    assert job.run(prelude=KILLED["replaced"]).returncode == -signal.SIGKILL
    before = (job.run_folder / "checkpoint" / "state.safetensors").read_bytes()
    result = job.run("--resume", **small)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == (
        "ferry train: the state of step 20 can't be written to my run: File too large. The state of step 10 is whole: "
        "mend that, then go on with `ferry train --config c.toml --run 'my run' --resume`.\n"
    )
    assert (job.run_folder / "checkpoint" / "state.safetensors").read_bytes() == before
    assert sorted(os.listdir(job.run_folder / "checkpoint")) == ["log.txt", "state.safetensors", "tensorboard"]


@pytest.fixture
def disk(tmp_path):
    """Mount a memory disk with these options at tmp_path/my run; root may."""
    run = tmp_path / "my run"
    run.mkdir()

    def mount(options: str) -> None:
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(run)]
        if subprocess.run(command, capture_output=True, check=False).returncode:
            pytest.skip("mounting a disk needs root")

    yield mount
    subprocess.run(["umount", str(run)], capture_output=True, check=False)


def test_disk_too_small_for_the_curves(job, disk):
    disk("size=36k")
    (job.folder / "c.toml").write_text(CONFIG.replace("checkpoint_steps = 10", "checkpoint_steps = 500"))
    result = job.run()
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith("ferry train: the ")
    assert " can't be written to my run: No space left on device. No earlier state is there: mend that" in result.stderr
    assert result.stderr.count("\n") == 1


def test_disk_too_small_for_the_result(job, disk, unbroken):
    # A state and the one that replaces it fit, but not the result beside them.
    disk("size=10m")
    job.run(prelude=KILLED["finished"])
    used = shutil.disk_usage(job.run_folder).used
    shutil.rmtree(job.run_folder / "train")
    with (job.run_folder / ".room").open("wb") as file:
        file.write(bytes(10 * 2**20 - used + 20_000))
    result = job.run("--resume")
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith(
        "ferry train: the result can't be written to my run: No space left on device. The state"
    )
    assert result.stderr.count("\n") == 1
    (job.run_folder / ".room").unlink()
    assert_finished(job, unbroken, "--resume")


@pytest.mark.parametrize("command", ["train", "export", "verify"])
def test_read_only_disk_is_told_before_anything_is_done(job, disk, monkeypatch, command):
    disk("ro")
    monkeypatch.chdir(job.folder)
    options = ["--config", "c.toml"] if command == "train" else []
    result = CliRunner().invoke(cli, [command, *options, "--run", "my run"])
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == (
        f"ferry {command}: the run folder my run can't be written: Read-only file system. "
        "Mend that, or name another folder with --run.\n"
    )


@pytest.fixture
def heard():
    """The signals that reach the handlers around an interruption."""
    numbers: list[int] = []
    before = {
        number: signal.signal(number, lambda n, _: numbers.append(n)) for number in (signal.SIGINT, signal.SIGTERM)
    }
    yield numbers
    for number, handler in before.items():
        signal.signal(number, handler)


def test_signal_is_noted_and_handlers_are_put_back(heard):
    handlers = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    interruption = Interruption()
    with pytest.raises(KeyError), interruption:
        raise KeyError(signal.raise_signal(signal.SIGTERM), signal.raise_signal(signal.SIGTERM))
    assert interruption.signal is signal.SIGTERM
    assert heard == []
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == handlers


@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.usefixtures("heard")
def test_second_sigint_ends_at_once(first):
    with Interruption():
        signal.raise_signal(first)
        with pytest.raises(SystemExit) as caught:
            signal.raise_signal(signal.SIGINT)
    assert caught.value.code == 130


def test_signal_that_nobody_asked_for_is_handed_on(heard):
    with Interruption():
        signal.raise_signal(signal.SIGTERM)
    assert heard == [signal.SIGTERM]


def test_ignored_signal_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interruption() as interruption:
            signal.raise_signal(signal.SIGHUP)
            assert interruption.signal is None
    finally:
        signal.signal(signal.SIGHUP, before)
