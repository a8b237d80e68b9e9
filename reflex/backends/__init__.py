"""Interpreters of programs: `reference` (numpy float32, the oracle and tap point), `cpu` (ahead-of-time compiled), `cuda`."""
