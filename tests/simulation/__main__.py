"""``python -m tests.simulation --seeds N [--first S] [--bug NAME] [--json]``."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import Counter
from dataclasses import asdict

HASH_SEED = "0"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser("tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=20, help="how many worlds")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--bug", help="play with a planted bug until it is found")
    parser.add_argument("--json", action="store_true", help="one JSON object at the end")
    parser.add_argument("--verbose", action="store_true", help="say every world")
    return parser.parse_args()


def main() -> int:
    """Run the worlds; 1 at the first that breaks a law."""
    from tests.simulation.quiet import be_quiet  # noqa: PLC0415

    be_quiet()
    from tests.simulation.bugs import cast_of  # noqa: PLC0415
    from tests.simulation.world import simulate  # noqa: PLC0415

    options = _arguments()
    cast = cast_of(options.bug)
    began, events, counts, virtual_s = time.monotonic(), 0, Counter[str](), 0.0
    failure, digests = None, []
    for seed in range(options.first, options.first + options.seeds):
        outcome = simulate(seed, cast)
        events += outcome.events
        virtual_s += outcome.virtual_s
        counts.update(outcome.counts)
        digests.append(outcome.digest)
        if options.verbose:
            print(asdict(outcome) | {"counts": None}, flush=True)
        if outcome.problem is not None:
            failure = outcome
            break
    seconds = time.monotonic() - began
    summary = {
        "seeds": len(digests),
        "events": events,
        "seconds": round(seconds, 2),
        "events_per_second": round(events / seconds),
        "seeds_per_minute": round(60 * len(digests) / seconds, 1),
        "virtual_seconds": round(virtual_s),
        "digests": digests if options.json else None,
        "counts": dict(sorted(counts.items())) if options.json else None,
        "failure": None if failure is None else {"seed": failure.seed, "step": failure.step,
                                                 "problem": failure.problem},
    }  # fmt: skip
    _say(summary, options)
    return 0 if failure is None else 1


def _say(summary: dict[str, object], options: argparse.Namespace) -> None:
    if options.json:
        print(json.dumps(summary))
        return
    for name in ("seeds", "events", "seconds", "events_per_second", "seeds_per_minute"):
        print(f"{name}: {summary[name]}")
    failure = summary["failure"]
    if isinstance(failure, dict):
        bug = f" --bug {options.bug}" if options.bug else ""
        print(f"seed {failure['seed']}, step {failure['step']}: {failure['problem']}")
        print(f"again: python -m tests.simulation --first {failure['seed']} --seeds 1{bug}")


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != HASH_SEED:
        # The order of hash maps is part of a world: fix it, or a seed is not the same world.
        os.environ["PYTHONHASHSEED"] = HASH_SEED
        os.execv(sys.executable, [sys.executable, "-m", "tests.simulation", *sys.argv[1:]])
    sys.exit(main())
