"""The base of the records that reach a person: frozen, comparable, convertible to a dictionary, shown as a table in notebooks.

Written by hand because `dataclasses` costs 13 ms of a cold start. Called by score, generate, check and api.
Refuses: changing a record after it was made.
"""

from .errors import InvalidInputError


class Record:
    """A frozen set of named fields: the subclass's `__slots__`, given in order or by name."""

    __slots__ = ()

    def __init__(self, *values, **named):
        names = self.__slots__
        if len(values) > len(names):
            raise TypeError(f"{type(self).__name__} takes {len(names)} fields, got {len(values)}")
        named.update(zip(names, values, strict=False))
        if len(named) != len(names) or not all(name in named for name in names):
            raise TypeError(f"{type(self).__name__} needs exactly the fields {', '.join(names)}")
        for name in names:
            object.__setattr__(self, name, named[name])

    def __setattr__(self, name, value):
        raise AttributeError(f"{type(self).__name__} is frozen: cannot set {name!r}")

    def __delattr__(self, name):
        raise AttributeError(f"{type(self).__name__} is frozen: cannot delete {name!r}")

    def __eq__(self, other):
        return type(other) is type(self) and self._values() == other._values()

    def __hash__(self):
        return hash((type(self).__name__, repr(self._values())))

    def __repr__(self):
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)
        return f"{type(self).__name__}({fields})"

    def __reduce__(self):
        return type(self), self._values()

    def _values(self):
        return tuple(getattr(self, name) for name in self.__slots__)

    def to_dict(self):
        """Fields by name, ready for JSON; nested records become dictionaries, tuples and arrays become lists, bytes lists of
        numbers."""
        return {name: _plain(getattr(self, name)) for name in self.__slots__}

    def table(self):
        """A list of dictionaries, one per row of what this record lists; of one that lists nothing, the record itself."""
        return [self.to_dict()]

    def to_pandas(self):
        """`table()` as a pandas DataFrame. InvalidInputError where pandas is not installed."""
        return needed("pandas").DataFrame(self.table())

    def replace(self, **named):
        """A copy with some fields changed."""
        return type(self)(**({name: getattr(self, name) for name in self.__slots__} | named))

    def _repr_html_(self):
        rows = [(name, _short(getattr(self, name))) for name in self.__slots__]
        return table(("field", "value"), rows)


def needed(package):
    """A package that only the extra `lab` installs; it is imported now."""
    try:
        return __import__(package)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        remedy = "pip install 'reflex-gguf[lab]'"
        raise InvalidInputError(f"this needs {package}", package, "no such package", remedy=remedy) from None


def _plain(value):
    if isinstance(value, Record):
        return value.to_dict()
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, bytes):
        return list(value)
    return value.tolist() if hasattr(value, "tolist") else value  # numpy, without importing it


def _short(value, limit=80):
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"


class Markup(str):
    """A cell that is HTML already."""


def bar(share):
    """HTML of a bar that fills `share` (0 to 1) of its cell."""
    style = "display:inline-block;width:8em;height:0.8em;background:rgba(128,128,128,.2)"
    return f'<span style="{style}"><span style="{style};width:{8 * share:.2f}em;background:#4e79a7"></span></span>'


def escape(text):
    """`text` with the characters that HTML gives a meaning replaced; line breaks are shown as a sign."""
    if isinstance(text, Markup):
        return text
    text = str(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")
    return text.replace("\n", "↵")


def table(titles, rows, strong=None):
    """A small HTML table of already short cells; row number `strong` is set in bold."""
    head = "".join(f"<th>{escape(title)}</th>" for title in titles)
    body = []
    for number, row in enumerate(rows):
        cells = "".join(f"<td><b>{escape(cell)}</b></td>" if number == strong else f"<td>{escape(cell)}</td>" for cell in row)
        body.append(f"<tr>{cells}</tr>")
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"
