"""Run the benchmarks: `python -m bench [NAME…]`."""

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
    queues,
    serving,
    throughput,
)

BENCHMARKS = {
    "throughput": throughput.measure,
    "memory": memory.measure,
    "budget": budget.measure,
    "imports": imports.measure,
    "cutting": cutting.measure,
    "files": files.measure,
    "changes": changes.measure,
    "queues": queues.measure,
    "audits": audits.measure,
    "pipelines": pipelines.measure,
    "serving": serving.measure,
}


def main() -> int:
    names = sys.argv[1:] or list(BENCHMARKS)
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        print(
            f"no such benchmark: {', '.join(unknown)}; known: {', '.join(BENCHMARKS)}"
        )
        return 2
    # what is installed has its bytecode, and is not compiled whenever it starts
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    held = [BENCHMARKS[name]() for name in names]
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
