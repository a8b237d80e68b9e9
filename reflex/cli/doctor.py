"""Look at this machine and this installation, and say what to do about what is wrong or slow.

Checks the CPU level, the kernel cache, the Python build, slow .pth files, huge pages, threads and the demo model.
Exit code 1 when something fails; advice on speed alone is a warning.
"""

from .front import SHOWN

PARAMETERS = SHOWN


def run(out):
    """Print one line per check; 1 when any failed."""
    from ..examine import examine

    checks = examine()
    failed = [check for check in checks if check.status == "fail"]
    if out.json:
        out.record("result", {"command": "doctor", "ok": not failed, "checks": [check.as_dict() for check in checks]})
        return 1 if failed else 0
    for check in checks:
        out.text(f"{check.status:<5} {check.name:<12} {check.found}\n")
        if check.remedy:
            out.text(f"{'':<18} -> {check.remedy}\n")
    out.text(f"{len(failed)} of {len(checks)} checks failed\n" if failed else f"{len(checks)} checks, nothing failed\n")
    return 1 if failed else 0
