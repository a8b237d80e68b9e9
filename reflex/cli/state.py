"""What --import-state and --export-state ask of a command that answers one prompt. Imported where one of them is given."""

from ..state import export_state, import_state


class State:
    """`source`, `target`: paths, or empty; `kind`: of --state-type. Takes the state of `source` at once, and computes the prompt so
    that its state may be written to `target` at the `end`."""

    def __init__(self, out, session, text, source, target, kind):
        self.out, self.session, self.target = out, session, target
        self.kind = None if kind == "kept" else kind
        self.ids = session.encode(text)
        self._source = source
        self._found = import_state(session, source, self.ids, wait=False) if source else None
        if target:
            session.settle(self.ids)
        if getattr(session.plan, "arriving", None) is None:  # else what is on its way may yet be found damaged
            self._say()
        out.mark("state")

    def _say(self):
        """What was taken of the source, once."""
        found, self._found = self._found, None
        if found:
            taken = f"{found.reused} of {found.tokens} tokens from {self._source}"
            self.out.note(f"reflex: state: {taken} for a prompt of {len(self.ids)}")
            for note in found.notes:
                self.out.warn(note)

    def end(self):
        """Write the state of the prompt, once there is an answer."""
        self._say()
        if self.target:
            export_state(self.session, self.ids, self.target, self.kind)
            self.out.mark("export")
