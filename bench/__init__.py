"""Benchmarks: what is timed, against whom, and the files in results/. Run from the root of the repository."""
