"""`python -m tests.long.soak [--seconds 600]`: mixed streams, and what they leave behind.

Ends with an error where an answer is wrong, memory grows with the requests, or something is not
given back: permits of the proxy, rows and requests of the engines, descriptors, threads.
"""

from __future__ import annotations

import argparse
import sys

from tests.long.soak.soak import soaked


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    report = soaked(given.seconds, seed=given.seed)
    sys.stdout.write(f"{report}\n")
    return 1 if report.faults else 0


if __name__ == "__main__":
    sys.exit(main())
