"""Emitter of the head: final norm, output matrix, scale and soft cap of the logits."""


def emit_head(program, spec):
    h = program.buffer("h", spec.width)
    logits = program.buffer("logits", spec.vocabulary)
    program.norm(h, "x", spec.output_norm, spec)
    program.linear(logits, h, spec.output)
    if spec.logit_factor != 1.0:
        program.emit("scale", logits, (logits,), (), {"factor": spec.logit_factor})
    if spec.final_softcap:
        program.emit("softcap", logits, (logits,), (), {"cap": spec.final_softcap})
