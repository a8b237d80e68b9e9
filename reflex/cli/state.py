"""What --import-state and --export-state ask of a command that answers one prompt. Imported where one of them is given."""

from ..state import export_state, import_state


class State:
    """`source`, `target`: paths, or empty; `kind`: of --state-type. Takes the state of `source` at once, and computes the prompt so
    that its state may be written to `target` at the `end`."""

    def __init__(self, out, session, text, source, target, kind):
        self.out, self.session, self.target = out, session, target
        self.kind = None if kind == "kept" else kind
        self.ids = session.encode(text)
        if source:
            found = import_state(session, source, self.ids, wait=False)
            out.note(f"reflex: state: {found.reused} of {found.tokens} tokens from {source} for a prompt of {len(self.ids)}")
            for note in found.notes:
                out.warn(note)
        if target:
            session.settle(self.ids)
        out.mark("state")

    def end(self):
        """Write the state of the prompt."""
        if self.target:
            export_state(self.session, self.ids, self.target, self.kind)
            self.out.mark("export")
