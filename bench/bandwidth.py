"""How fast this machine reads memory: the limit of decoding, against which kernels and models are stated.

Combines the 64-bit words of a buffer far larger than the last-level cache with numpy, one buffer per thread (numpy
releases the GIL meanwhile). Called by bench/warm.py and the kernel benchmarks.
"""

import time
from threading import Barrier, Thread

SIZE = 1 << 29  # bytes per thread: 16 times a large last-level cache
PASSES = 3


def _read(block, barrier, spans):
    import numpy

    barrier.wait()
    start = time.perf_counter()
    numpy.bitwise_or.reduce(block)  # the reduction that comes closest to the limit of the hardware
    spans.append((start, time.perf_counter()))


def read_rate(threads=1):
    """GB/s (1e9 bytes) that `threads` threads read together; the best of a few passes."""
    import numpy

    blocks = [numpy.ones(SIZE // 8, numpy.int64) for _ in range(threads)]
    best = 0.0
    for _ in range(PASSES):
        spans, barrier = [], Barrier(threads)
        workers = [Thread(target=_read, args=(block, barrier, spans)) for block in blocks]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        best = max(best, threads * SIZE / (max(end for _, end in spans) - min(start for start, _ in spans)) / 1e9)
    return best
