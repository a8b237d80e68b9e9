"""penalize: weakens the tokens that occurred lately, as reflex.sample.penalize does; `advance` puts their logits back. Grid: 1."""

from numba import cuda
from numba.types import float32, float64, int32

from . import ptx
from .export import kernel

THREADS = 256
PENALTY = 5  # place in the settings, see sample.py


@kernel("FIFDi", threads=THREADS)
def penalize(logits, recent, saved, settings, count):
    """recent: int32[count] ids with a logit, -1 where there is none; any may repeat. saved: float32[count], their logits before."""
    ptx.pdl_launch()
    ptx.pdl_wait()
    penalty = settings[PENALTY]
    i = int32(cuda.threadIdx.x)
    while i < count:
        token = recent[i]
        if token >= 0:
            saved[i] = logits[token]
        i = int32(i + THREADS)
    cuda.syncthreads()  # a token that repeats is written twice, from the same old logit
    i = int32(cuda.threadIdx.x)
    while i < count:
        token = recent[i]
        if token >= 0:
            value = float64(saved[i])
            logits[token] = float32(ptx.divd(value, penalty)) if value > 0.0 else float32(value * penalty)
        i = int32(i + THREADS)
