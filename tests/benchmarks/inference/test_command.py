"""The command, as far as it goes without the peers."""

from pathlib import Path

from click.testing import CliRunner

from benchmarks.inference.__main__ import main


def test_help_says_what_is_measured_and_how_it_ends() -> None:
    result = CliRunner().invoke(main, ["--help"])
    assert result.exit_code == 0
    for word in ("Optimum", "OpenVINO", "--quick", "--run", "--peers", "Exit codes"):
        assert word in result.stdout


def test_without_the_peers_environment_nothing_is_measured(tmp_path: Path) -> None:
    python = tmp_path / "python"
    result = CliRunner().invoke(main, ["--peers", str(python), "--parts", str(tmp_path / "parts")])
    assert result.exit_code == 2
    assert result.stderr == (
        f"inference: {python} is missing: the peers' environment. Run `make bench`, which makes it.\n"
    )
    assert not (tmp_path / "parts").exists()
