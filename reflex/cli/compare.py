"""How far model B is from model A, where B is often A in other types: tensor by tensor and, on a text, prediction by prediction.

Per tensor: relative error (root mean square), cosine, largest change, types and bytes. With --text: KL divergence, how often both
think the same token most likely, by how much probabilities change, and the ratio of perplexities, with standard errors. Ctrl-C
prints what is known and exits with 130.
"""

from . import front, measuring

PARAMETERS = (
    ("A", "text", None, "The model that is taken to be right: a .gguf file, or demo."),
    ("B", "text", None, "The model that is compared with it."),
    ("--text", "text", "", "Compare predictions on this text too: a file, - for stdin, or demo for one that comes with Reflex."),
    *measuring.WINDOWS,
    ("--tokens", "int", 0, "Use the first so many tokens of the text; 0 takes all."),
    measuring.PICTURE,
    *front.ENGINE,
    *front.SHOWN,
)


def run(out, a, b, text, method, window, stride, tokens, picture, engine):
    """Exit code 0 after printing the comparison, 130 after Ctrl-C."""
    measuring.checked_picture(picture)
    from ..demo import resolve
    from ..gguf.reader import open_model
    from ..lab.compare import Comparing

    out.mark("imports")
    if text:
        content = measuring.read_text(text)
        models = [measuring.opened(path, engine, out) for path in (a, b)]
        sessions = [model.session().core for model in models]
        cut = {"method": method, "window": window, "stride": stride, "tokens": tokens}
        comparing = Comparing(models[0].file, models[1].file, sessions, content, **cut)
    else:
        comparing = Comparing(open_model(resolve(a)), open_model(resolve(b)))
        out.mark("header")
    code = measuring.finish(comparing, "steps")
    found = comparing.result()
    out.mark("comparison")
    if out.json:
        out.record("result", found.to_dict())
    else:
        out.text(shown(found))
    measuring.draw(found, picture, out)
    return code


def shown(found):
    """The result as lines of text."""
    from ..tables import render

    lines = ""
    if found.changed:
        lines = render([cells(tensor) for tensor in found.tensors if tensor.error != 0], [*cells(found.tensors[0])])
    same = len(found.tensors) - len(found.changed)
    lines += f"{same} of {len(found.tensors)} tensors are the same; {found.bytes_a} bytes in A, {found.bytes_b} in B\n"
    if found.text:
        lines += predictions(found.text)
    return lines if found.complete else lines + "interrupted: this is a part\n"


def cells(tensor):
    """A row of the table of tensors."""
    return {
        "tensor": tensor.name, "A": tensor.type_a, "B": tensor.type_b, "bytes A": tensor.bytes_a, "bytes B": tensor.bytes_b,
        "relative error": f"{tensor.error:.6f}", "cosine": f"{tensor.cosine:.6f}", "largest": f"{tensor.largest:.4g}",
    }  # fmt: skip


def predictions(text):
    """Lines about a Divergence."""
    pm = measuring.pm
    return (
        f"KL divergence {pm(text.kl, text.kl_error, '.6f')} nats per token, median {text.kl_median:.6f}, 90 % {text.kl_90:.6f}, "
        f"99 % {text.kl_99:.6f}, most {text.kl_max:.6f}\n"
        f"same top token {pm(100 * text.same_top, text.same_top_error and 100 * text.same_top_error, '.2f')} %\n"
        f"probability of A's top token {change(text.top_change, text.top_change_error, text.top_change_rms)}\n"
        f"probability of the next token {change(text.next_change, text.next_change_error, text.next_change_rms)}\n"
        f"perplexity A {pm(text.perplexity_a, text.perplexity_a_error)}, B {pm(text.perplexity_b, text.perplexity_b_error)}, "
        f"ratio {pm(text.ratio, text.ratio_error)}\n"
        f"{text.scored} of {text.tokens} tokens compared; {measuring.in_windows(text)}\n"
    )


def change(middle, error, rms):
    error = "" if error is None else f" ± {100 * error:.3f}"
    return f"{100 * middle:+.3f}{error} points, root mean square {100 * rms:.3f}"
