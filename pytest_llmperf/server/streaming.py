"""A script for the engine's own Python: how many bytes a second the memory gives when it is read.

It is run by path, prints one line of JSON, and imports nothing of ours. Running it is in
``bandwidth``. It reads one large array again and again, as decoding reads weights; NumPy or torch
does the reading, since they stand beside the engine.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from typing import Any

_WIDTH = 4096
_FLOAT = 4
_ARRAYS = 4
"""Arrays of this many caches: what one pass leaves in the cache is little of the next one."""

Pass = Callable[[], object]


def main(arguments: Sequence[str]) -> None:
    """Print what each kernel reached: cache bytes, most bytes, repetitions, thread counts."""
    cache, most, repetitions, *threads = map(int, arguments)
    try:
        found = _with_torch(cache, most, repetitions, threads)
    except ImportError:
        found = _with_numpy(min(most, _ARRAYS * cache), repetitions, threads)
    sys.stdout.write(json.dumps(found) + "\n")


def _with_torch(cache: int, most: int, repetitions: int, threads: Sequence[int]) -> dict[str, Any]:
    torch: Any = import_module("torch")  # may not be there, and has no types here
    if torch.cuda.is_available():
        return _on_gpu(torch, repetitions)
    rows = max(1, min(most, _ARRAYS * cache) // (_WIDTH * _FLOAT))
    array, ones = torch.ones(rows, _WIDTH), torch.ones(_WIDTH)
    size = rows * _WIDTH * _FLOAT
    series = []
    for number in threads:
        torch.set_num_threads(number)
        for name, one in {"sum": array.sum, "matrix-vector": lambda: torch.mv(array, ones)}.items():
            series.append(_series(name, number, _timed(one, size, repetitions)))
    return {"device": "cpu", "array_bytes": size, "cache_bytes": cache, "series": series}


def _on_gpu(torch: Any, repetitions: int) -> dict[str, Any]:  # noqa: ANN401 - a module
    """Read and copy in what the engine leaves free of the GPU's memory."""
    cache = getattr(torch.cuda.get_device_properties(0), "L2_cache_size", 0)
    free, _ = torch.cuda.mem_get_info()
    elements = min(free // 4, max(2**30, 8 * cache)) // _FLOAT
    array = torch.ones(elements, device="cuda")
    size, target = elements * _FLOAT, torch.empty_like(array)

    def synchronised(one: Pass) -> Pass:
        return lambda: (one(), torch.cuda.synchronize())

    passes = {"sum": (array.sum, size), "copy": (lambda: target.copy_(array), 2 * size)}
    series = [
        _series(name, None, _timed(synchronised(one), moved, repetitions))
        for name, (one, moved) in passes.items()
    ]
    device = torch.cuda.get_device_name(0)
    return {"device": device, "array_bytes": size, "cache_bytes": cache or None, "series": series}


def _with_numpy(most: int, repetitions: int, threads: Sequence[int]) -> dict[str, Any]:
    import numpy as np  # noqa: PLC0415 - the engine's, where it has no torch

    array = np.ones(max(1, most // _FLOAT), dtype=np.float32)
    series = []
    for number in threads:
        slices = np.array_split(array, number)
        with ThreadPoolExecutor(number) as pool:

            def one(pool: ThreadPoolExecutor = pool, slices: Any = slices) -> object:  # noqa: ANN401
                return list(pool.map(np.sum, slices))

            series.append(_series("sum", number, _timed(one, array.nbytes, repetitions)))
    return {"device": "cpu", "array_bytes": array.nbytes, "cache_bytes": None, "series": series}


def _timed(one: Pass, moved: int, repetitions: int) -> list[float]:
    """Bytes per second of each repetition, after one that is not counted."""
    one()
    rates = []
    for _ in range(repetitions):
        start_ns = time.perf_counter_ns()
        one()
        rates.append(moved / (time.perf_counter_ns() - start_ns) * 1e9)
    return rates


def _series(kernel: str, threads: int | None, rates: list[float]) -> dict[str, Any]:
    return {"kernel": kernel, "threads": threads, "bytes_per_s": rates}


if __name__ == "__main__":
    main(sys.argv[1:])
