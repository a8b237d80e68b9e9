"""A column of a CSV or Parquet file as texts, and the file again with columns of results behind its own.

CSV is UTF-8 with a header line; bytes that are no UTF-8 go through as they are. Rows are streamed: memory holds a batch. Refuses,
before any scoring, what would make rows and results part: rows of another length than the header, names that are taken. Called by
ray.
"""

import contextlib
import csv
import hashlib
import json
import os

from ..errors import InputOutputError, InvalidInputError, ReflexError, UnsupportedError, closest

BATCH = 4096  # rows of a Parquet file that are held at once
LONGEST_FIELD = 1 << 23  # characters; an open quote takes the rest of a file for one field
RESULTS = {  # what each row gets, behind a prefix: (Parquet's type, what it is)
    "label": ("string", "the best label"),
    "probability": ("float64", "its probability among the labels"),
    "margin": ("float64", "the same less that of the runner-up"),
    "entropy_bits": ("float64", "of the probabilities"),
    "prompt_tokens": ("int64", "tokens of the prompt"),
    "scores": ("floats", "of all labels in their order, by the rule"),
    "error": ("string", "why the row could not be scored; everything else is empty then"),
}


def open_table(path, column, prefix, delimiter=","):
    """The table at `path`, by its name's ending. `column`: the one that is read."""
    kinds: dict[str, type[Csv] | type[Parquet]] = {".csv": Csv, ".tsv": Csv, ".parquet": Parquet, ".pq": Parquet}
    ending = os.path.splitext(path)[1].lower()
    if ending not in kinds:
        remedy = "convert it to one of them"
        raise UnsupportedError("no such kind of table", " or ".join(kinds), ending or "no ending", path, remedy)
    with reading(path):
        table = kinds[ending](path, "\t" if ending == ".tsv" else delimiter)
        if column not in table.names:
            found = ", ".join(table.names[:20]) or "none"
            remedy = f"did you mean {closest(column, table.names, 1)!r}?" if table.names else "the first line of CSV has the names"
            raise InvalidInputError("no such column", repr(column), found, path, remedy)
        for name in RESULTS:
            if prefix + name in table.names:
                remedy = "choose another --prefix"
                raise InvalidInputError("a column of results is in the table already", "a free name", prefix + name, path, remedy)
        table.begin(column)
    table.column, table.prefix = column, prefix
    return table


@contextlib.contextmanager
def reading(path):
    """What goes wrong while a file is read, as an error that names it."""
    try:
        yield
    except ReflexError:
        raise
    except OSError as error:
        raise InputOutputError("cannot read the table", found=error.strerror or str(error), where=path) from None
    except (csv.Error, ValueError, KeyError) as error:  # pyarrow's errors are of these kinds
        remedy = "repair it or write it again"
        raise InvalidInputError("the table cannot be read", "CSV or Parquet, as its name says", str(error), path, remedy) from None


class Csv:
    """A CSV file. `rows` of them, under `names`."""

    column, prefix = "", ""  # given by open_table

    def __init__(self, path, delimiter):
        if len(delimiter) != 1 or delimiter in '"\r\n':
            raise InvalidInputError("the delimiter is no delimiter", "one character", repr(delimiter), remedy="--delimiter ','")
        self.path, self.delimiter = path, delimiter
        with self._open() as file:
            self.names = next(self._reader(file), [])
        if len(set(self.names)) < len(self.names):
            twice = next(name for name in self.names if self.names.count(name) > 1)
            raise InvalidInputError("a column's name is there twice", "different names", repr(twice), path, "rename one of them")

    def _open(self):
        return open(self.path, encoding="utf-8-sig", errors="surrogateescape", newline="")

    def _reader(self, file):
        csv.field_size_limit(LONGEST_FIELD)
        return csv.reader(file, delimiter=self.delimiter, strict=True)

    def begin(self, column):
        """Go through the file once: every row must have the header's length."""
        self.rows, self._at = 0, self.names.index(column)
        for _ in self._lines():
            self.rows += 1

    def _lines(self):
        with reading(self.path), self._open() as file:
            reader = self._reader(file)
            next(reader)
            for row in reader:
                if len(row) != len(self.names):
                    if not row:  # an empty line
                        continue
                    found, where = f"{len(row)} fields", f"{self.path}, line {reader.line_num}"
                    remedy = "put fields with the delimiter into quotes"
                    raise InvalidInputError("a row is not like the header", f"{len(self.names)} fields", found, where, remedy)
                yield row

    def texts(self):
        """The column, row by row."""
        for row in self._lines():
            yield row[self._at]

    def write(self, place, results):
        """Write the table with `results`, a row's values in the order of RESULTS each, to the path `place`."""
        with open(place, "w", encoding="utf-8", errors="surrogateescape", newline="") as file:
            writer = csv.writer(file, delimiter=self.delimiter, lineterminator="\n")
            writer.writerow([*self.names, *(self.prefix + name for name in RESULTS)])
            for row, found in zip(self._lines(), results, strict=True):
                writer.writerow([*row, *map(_field, found)])


def _field(value):
    """A result as a field of CSV; floats so that they can be read back to the bit."""
    if value is None:
        return ""
    return json.dumps(value) if isinstance(value, list) else value


class Parquet:
    """A Parquet file; needs pyarrow."""

    column = prefix = ""

    def __init__(self, path, delimiter):
        try:
            import pyarrow
            from pyarrow import parquet
        except ModuleNotFoundError:
            remedy = "pip install 'reflex-gguf[ray]', or use CSV"
            raise UnsupportedError("Parquet needs pyarrow", "the package pyarrow", "nothing", path, remedy) from None
        self.path, self.arrow, self.parquet = path, pyarrow, parquet
        with parquet.ParquetFile(path) as file:
            self.schema, self.rows = file.schema_arrow, file.metadata.num_rows
        self.names = self.schema.names

    def begin(self, column):
        types = self.arrow.types
        kind = self.schema.field(column).type
        if types.is_dictionary(kind):
            kind = kind.value_type
        if not (types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)):
            raise InvalidInputError("the column holds no text", "strings", str(kind), f"{self.path}, {column}", "convert it first")

    def _batches(self, columns=None):
        with reading(self.path), self.parquet.ParquetFile(self.path) as file:
            yield from file.iter_batches(BATCH, columns=columns)

    def texts(self):
        for batch in self._batches([self.column]):
            with reading(self.path):
                texts = batch.column(0).to_pylist()
            yield from texts

    def write(self, place, results):
        arrow = self.arrow
        types = {
            "floats": arrow.list_(arrow.float64()),
            "string": arrow.string(),
            "int64": arrow.int64(),
            "float64": arrow.float64(),
        }
        fields = [arrow.field(self.prefix + name, types[kind]) for name, (kind, _) in RESULTS.items()]
        schema = arrow.schema([*self.schema, *fields], self.schema.metadata)
        with self.parquet.ParquetWriter(place, schema) as writer:
            for batch in self._batches():
                found = [next(results) for _ in range(batch.num_rows)]
                columns = zip(*found, strict=True) if found else [()] * len(fields)
                arrays = [arrow.array(column, field.type) for column, field in zip(columns, fields, strict=True)]
                writer.write_batch(arrow.RecordBatch.from_arrays([*batch.columns, *arrays], schema=schema))


def digest(path):
    """SHA-256 of a file's content."""
    with reading(path), open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
