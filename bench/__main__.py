"""Run the benchmarks: `python -m bench [--small] [NAME…]`."""

import os
import sys

from bench import (
    audits,
    budget,
    changes,
    cutting,
    files,
    imports,
    memory,
    pipelines,
    points,
    queues,
    schedules,
    serving,
    throughput,
    wake_ups,
)

# each is called with `small`, which has it run through in seconds with sizes whose
# figures say nothing
BENCHMARKS = {
    "throughput": throughput.measure,
    "memory": memory.measure,
    "budget": budget.measure,
    "imports": imports.measure,
    "cutting": cutting.measure,
    "files": files.measure,
    "changes": changes.measure,
    "jobs": queues.measure_alone,
    "audits": audits.measure,
    "schedules": schedules.measure,
    "points": points.measure,
    "celery": wake_ups.measure,
    "file-loaders": files.measure_rivals,
    "queues": queues.measure,
    "pipelines": pipelines.measure,
    "serving": serving.measure,
}
# these need the environment of the rivals, which `make bench` creates
NEED_RIVALS = {"file-loaders", "queues", "pipelines", "serving"}


def main() -> int:
    arguments = [each for each in sys.argv[1:] if each != "--small"]
    names = arguments or list(BENCHMARKS)
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        print(
            f"no such benchmark: {', '.join(unknown)}; known: {', '.join(BENCHMARKS)}"
        )
        return 2
    # what is installed has its bytecode, and is not compiled whenever it starts
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    small = "--small" in sys.argv
    held = [BENCHMARKS[name](small=small) for name in names]
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
