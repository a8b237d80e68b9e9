"""CUDA kernels, one file per operation, compiled ahead of time to cubins. See export.py for how a file declares them."""
