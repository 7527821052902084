"""Where the time goes, with the standard library's profiler in every thread.

The profiler makes each Python call dearer and each C call (a commit, a sync) no dearer: read the order, not the
microseconds.
"""

import argparse
import cProfile
import io
import pstats
import threading
from typing import Any

TOP = 15


def profile_new_threads(profiles: list[cProfile.Profile]) -> None:
    """Python 3.12 and later allow one profiler in a process; there only the main thread is seen."""
    run = threading.Thread.run

    def run_profiled(self: threading.Thread) -> None:
        profile = cProfile.Profile()
        try:
            profile.enable()
        except ValueError:
            return run(self)
        profiles.append(profile)
        try:
            return run(self)
        finally:
            profile.disable()

    threading.Thread.run = run_profiled


def top_functions(profiles: list[cProfile.Profile], steps: int) -> list[dict[str, Any]]:
    """By own time, all threads together; per step where steps were counted."""
    stats = pstats.Stats(profiles[0], stream=io.StringIO())
    for profile in profiles[1:]:
        stats.add(profile)
    rows: list[dict[str, Any]] = []
    for (file, line, name), (_, calls, own, total, _) in stats.stats.items():  # pyright: ignore[reportAttributeAccessIssue]
        short = "/".join(file.split("/")[-2:])
        rows.append({
            "function": name if file == "~" else f"{short}:{line} {name}", "calls_per_step": calls / steps,
            "own_us": own / steps * 1e6, "total_us": total / steps * 1e6,
        })  # fmt: skip
    return sorted(rows, key=lambda row: row["own_us"], reverse=True)[:TOP]


def profiled(engine: Any, args: argparse.Namespace) -> dict[str, Any]:
    """Threads are seen too where they do the work; they must then start under the profiler."""
    from protocol import STEPS_PER_RUN

    main_thread = cProfile.Profile()
    profiles = [main_thread]
    if args.kind != "def":  # a lone `def` run commits on its own thread; a slowed writer thread would take that over
        profile_new_threads(profiles)
    engine.open()
    if args.work == "at_once":
        engine.at_once("warm", 4, STEPS_PER_RUN)
        steps = args.runs * STEPS_PER_RUN
        main_thread.enable()
        engine.at_once("profiled", args.runs, STEPS_PER_RUN)
    else:
        engine.sequence("warm", 20)
        steps = args.n
        main_thread.enable()
        getattr(engine, args.work)("profiled", args.n)
    main_thread.disable()
    engine.close()
    for profile in profiles[1:]:
        profile.create_stats()
    return {"steps": steps, "functions": top_functions(profiles, steps)}
