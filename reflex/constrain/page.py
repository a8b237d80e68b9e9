"""docs/constrain.md, its tables made from the code's own: `python -m reflex.constrain.page > docs/constrain.md`.

A test compares the committed page with this text.
"""

from .facts import ANNOTATIONS, KEYWORDS, NESTING
from .formats import FORMATS
from .grammar import DEEPEST, LIMIT
from .numbers import DIGITS, MOST_REMAINDERS, WHOLE_DIGITS
from .regex import SUBSET

TEXT = """# Constrained generation

Made by `python -m reflex.constrain.page`; do not edit.

    reflex generate demo "Is the sky green?" --choices " yes" --choices " no"
    reflex generate demo "Christmas of 2020:" --regex " \\d{{4}}-\\d{{2}}-\\d{{2}}"
    reflex generate demo "Anna, 34, teacher. As JSON: " --json-schema person.json

    m.generate(prompt, json_schema={{"type": "integer", "minimum": 1}})
    c = m.constraint(regex="[a-z]+")     # made once, used often: it keeps what was worked out about the tokens
    m.generate(prompt, constraint=c)

For a fixed list, `system1` is faster than `--choices` and gives probabilities: one forward pass scores all of them,
where a constraint commits to the first token before it has seen the rest.

What holds, on every backend and whatever the logits are:

- The text is one of the choices, matches the expression from its first character to its last, or is JSON that
  satisfies the schema.
- It is complete: a token is allowed only where the text can still be finished within `--max-tokens`. A text that may
  go on forever (a string, a number of items) gets its limit from there.
- A limit that cannot hold the shortest result is an error before any work. The shortest result is the one of the
  fewest bytes, spelled by the fewest tokens.
- It ends with `finish_reason` `stop` as soon as nothing may follow, without another step of the model. Where the text
  may end or go on, the model's end tokens compete; only where the limit comes first is the reason `length`, and the
  text is complete all the same.
- Tokens are bytes: a character may come in parts. Control tokens never occur inside, nor do user-defined ones but
  white space.
- Whatever cannot be enforced is an error that names it, never ignored. Stop texts are refused, since they could cut a
  result.

Sampling knows one step more: the repeat penalty acts on the logits, then only the allowed tokens are left, then
top-k, top-p, min-p and the temperature choose among them. Reported log-probabilities are the model's own over all
tokens.

## Regular expressions

| | |
|---|---|
{subset}

Where engines differ, what is allowed is what all of them accept: `\\d \\w \\s` are ASCII where a text must match them
and Unicode where it must not, `.` is no line end of any kind. Refused, with the place: look-around, back-references,
flags, possessive repetition, word borders, anchors elsewhere, operations on classes.

## JSON schemas

The text is compact JSON: no white space, members in the order of `properties`, each character of a string in its one
spelling (`\\u` only for control characters). A schema without `type` writes what its keywords speak of. Numbers have
a point or not, at most {digits} digits where they have bounds and a point, {whole} digits as integers without bounds,
and an exponent only without bounds.

| keyword | |
|---|---|
{keywords}

Annotations without effect: {annotations}. Any other keyword is an error.

`format`: {formats}.

Schemas may refer to themselves: the text then nests until the tokens end, or {deepest} references deep. Members of names
that are not in `properties` could come twice; readers keep the last, which satisfies the schema too.

## Limits

A constraint has at most {limit:,} parts, schemas are nested at most {nesting} deep, and a divisor
(`multipleOf`) is at most {remainders:,} unless bounds leave few numbers. Numbers of repetitions cost nothing, however
large. Where an expression is so
ambiguous that a text can be read in more than hundreds of ways at once, the ways nearest to an end are kept: then
some texts are left out, but never the way to an end, and never does another text get in.
"""


def _row(*cells):
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def text():
    """The page as Markdown."""
    notes = {f"`{name}`": note for name, (_, note) in KEYWORDS.items()}
    return TEXT.format(
        subset="\n".join(_row(name, words) for name, words in SUBSET),
        keywords="\n".join(_row(name, note) for name, note in notes.items()),
        annotations=", ".join(f"`{name}`" for name in ANNOTATIONS),
        formats=", ".join(f"`{name}`" for name in FORMATS),
        digits=DIGITS,
        whole=WHOLE_DIGITS,
        deepest=DEEPEST,
        limit=LIMIT,
        nesting=NESTING,
        remainders=MOST_REMAINDERS,
    )


if __name__ == "__main__":
    print(text(), end="")
