"""Measure this installation: cold start by phase, prompt and decode speed, share of the memory limit, peak memory.

Cold starts run in processes of their own with the page cache warm, interleaved with the commands given by --against, which
should do the same work and end. Figures are medians; the machine should be otherwise idle. --energy adds what the GPU takes for a
cold start, a token of a prompt and a decoded one.
"""

from . import front

PARAMETERS = (
    ("MODEL", "text", None, "A .gguf file, or demo."),
    ("--runs", "int", 15, "Cold starts to measure."),
    ("--against", "texts", (), "Another engine's command line to start in turn with ours."),
    *front.ENGINE,
    front.ENERGY,
    *front.SHOWN,
)


def run(out, model, runs, against, engine):
    """Exit code 0 after printing the figures."""
    from .. import measure
    from ..errors import InvalidInputError
    from ..open import open_model

    if runs < 1:
        raise InvalidInputError("--runs is out of range", "1 or more", runs)
    out.mark("imports")
    file, _, session = open_model(model, **engine, note=out.note)
    cold = measure.cold(model, engine, runs, against)
    out.mark("cold")
    warm = measure.warm(session, sum(tensor.nbytes for tensor in file.tensors.values()))
    out.mark("warm")
    meter, out.meter = out.meter, None  # this command reports by itself
    joules = {}
    if meter:
        joules = {"energy": measure.energy(meter, session, model, engine)}
        out.mark("energy")
    if out.json:
        facts = {"command": "bench", "model": session.model, "backend": session.backend}
        out.record("result", {**facts, "cold": cold, "warm": warm, **joules})
    else:
        show(out, cold, warm)
        if joules:
            show_energy(out, joules["energy"])
    return 0


def show(out, cold, warm):
    """The figures as text."""
    lines = [f"cold start, median of {cold['runs']}", f"  {'phase':<12} {'ms':>8} {'since exec':>11}"]
    before = 0.0
    for name, at in cold["phases"].items():
        lines.append(f"  {name:<12} {at - before:8.2f} {at:11.2f}")
        before = at
    lines.append(f"  whole process {cold['total_ms']:.2f} ms, peak memory {cold['peak_bytes'] / 2**20:.0f} MiB")
    for other in cold["against"]:
        lines.append(f"  {other['ratio']:.2f} times ours: {other['total_ms']:.2f} ms, {other['command']}")
    share = warm["weight_bytes_per_second"] / warm["read_bytes_per_second"]
    lines += [
        f"prompt  {warm['prompt_tokens_per_second']:9.1f} tokens/s",
        f"decode  {warm['decode_tokens_per_second']:9.1f} tokens/s, weights at {warm['weight_bytes_per_second'] / 1e9:.1f} GB/s",
        f"        {share:.0%} of the {warm['read_bytes_per_second'] / 1e9:.1f} GB/s that one thread reads from memory",
    ]
    out.text("\n".join(lines) + "\n")


def show_energy(out, rows):
    """What the GPU takes, as text."""
    for name, row in rows.items():
        out.text(f"energy  {row['each_joules']:9.4f} J per {name}, over {row['count']} in {row['seconds']:.1f} s\n")
    out.text(f"        by {row['method']} of {row['device']}, beside {row['idle_watts']:.1f} W when idle\n")
