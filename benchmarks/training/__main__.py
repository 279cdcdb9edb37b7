"""`python -m benchmarks.training`: measure, draw, and write training.json and training.png."""

import argparse
import json
import sys
from pathlib import Path

from benchmarks.results import RESULTS, describe_machine, describe_versions, write_result
from benchmarks.training.measure import PEER_PYTHON, QUICK, measure
from benchmarks.training.picture import draw_curves
from export.errors import FerryError

# A quick run says whether all works; its figures replace none that are committed.
QUICK_RESULTS = Path("build") / "benchmarks"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.training", description=__doc__)
    parser.add_argument(
        "--peer-python",
        type=Path,
        default=PEER_PYTHON,
        metavar="FILE",
        help="interpreter of the environment with transformers and accelerate [.venv-bench]",
    )
    parser.add_argument("--quick", action="store_true", help=f"fewer tokens, a smaller model; into {QUICK_RESULTS}")
    parser.add_argument("--threads", type=int, default=2, metavar="N", help="torch's threads [2]")
    arguments = parser.parse_args()
    try:
        quick = QUICK if arguments.quick else {}
        measured = measure(arguments.peer_python, threads=arguments.threads, **quick)
    except (ValueError, FerryError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2 if isinstance(error, ValueError) else 1
    folder = QUICK_RESULTS if arguments.quick else RESULTS
    document = {
        "machine": describe_machine(),
        "versions": describe_versions(),
        "training": measured,
        "ratios": {"training_tokens": measured["ratio"]},
    }
    write_result(folder / "training.json", (json.dumps(document, indent=1) + "\n").encode())
    draw_curves(folder / "training.png", measured)
    for training in measured["trainings"]:
        print(
            f"{training['name']}: {training['tokens_per_second']:,} tokens/s, validation loss "
            f"{training['validation']['loss']:.3f}, accuracy {100 * training['validation']['accuracy']:.1f} %"
        )
    ratio = measured["ratio"]
    print(f"{ratio['ours']} / {ratio['peer']}: {ratio['median']:.2f} ({ratio['low']:.2f} to {ratio['high']:.2f})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
