"""The CPU levels that host kernels are compiled for. One build process compiles for one level, named by REFLEX_LEVEL.

Levels follow the x86-64 psABI; v4 adds VNNI because every AVX-512 server since 2019 has it and int8 dot products are
the whole job. The run-time twin of this table, with /proc/cpuinfo flags, is `native.MACHINE_LEVELS`.
"""

import os
import platform
from dataclasses import dataclass


@dataclass(frozen=True)
class Target:
    level: str
    triple: str
    cpu: str  # LLVM's name
    features: str  # LLVM feature string added to the cpu's own
    machine: str
    avx2: bool = False
    vnni: bool = False  # AVX-512 VL + VNNI

    @property
    def registers(self):
        """Vector registers a kernel may plan with."""
        return 16 if self.machine == "x86_64" and not self.vnni else 32


_LINUX = "x86_64-unknown-linux-gnu"
TARGETS = {
    t.level: t
    for t in (
        Target("x86-64-v4", _LINUX, "x86-64-v4", "+avx512vnni", "x86_64", avx2=True, vnni=True),
        Target("x86-64-v3", _LINUX, "x86-64-v3", "", "x86_64", avx2=True),
        Target("x86-64-v2", _LINUX, "x86-64-v2", "", "x86_64"),
        Target("aarch64", "aarch64-unknown-linux-gnu", "generic", "+neon", "aarch64"),
    )
}


def environment(target):
    """What a build process for `target` must have in its environment before it imports numba.

    NUMBA_OPT: all optimizing is left to the pass over a whole file (compile.py). Numba's own would go over every function with all
    that it calls first, which takes as long again and gives larger and slower code.
    """
    name, features = target.cpu, target.features
    if target.vnni:
        # of linear_permuted.py: Numba makes code, which is thrown away, of all that it sees
        features += ",+avx512vbmi,+avx512bitalg,+gfni"
    if target.machine != platform.machine():  # numba first compiles for the machine it runs on, whatever the goal
        name, features = ("x86-64-v3", "") if platform.machine() == "x86_64" else ("generic", "")
    return {"REFLEX_LEVEL": target.level, "NUMBA_CPU_NAME": name, "NUMBA_CPU_FEATURES": features, "NUMBA_OPT": "0"}


def current():
    """The target of this build process."""
    level = os.environ.get("REFLEX_LEVEL")
    if level is None:
        level = "aarch64" if platform.machine() == "aarch64" else "x86-64-v3"
    return TARGETS[level]
