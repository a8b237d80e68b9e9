"""What `import_state` and `export_state` ask of a request. Imported where one of them is given."""

from ..errors import InvalidInputError
from ..state import export_state, import_state


class State:
    """As reflex/cli/state.py; `fields`: of the result, what was taken from the file."""

    def __init__(self, timeline, prompt, source, target):
        for name, path in (("import_state", source), ("export_state", target)):
            if path is not None and path[:1] != "/":
                raise InvalidInputError("a path of a request is absolute", "a path that begins with /", repr(path), name)
        self.timeline, self.target, self.fields = timeline, target, {}
        self.ids = timeline.encode(prompt)
        if source:
            found = import_state(timeline, source, self.ids, wait=False)
            self.fields = {"state": {"tokens": found.tokens, "reused": found.reused, "warnings": found.notes}}
        if target:
            timeline.settle(self.ids)

    def end(self):
        """Write the state of the prompt."""
        if self.target:
            export_state(self.timeline, self.ids, self.target)
