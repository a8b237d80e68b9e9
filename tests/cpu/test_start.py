"""Python started through the folder of `_build/start.py`: its stand-in for `encodings`, and how it falls back."""

import shutil
import subprocess
import sys

import pytest
from test_packaging import ROOT, backend, install, wheel  # noqa: F401

LOOKS = """
import sys
import codecs
text = "h\\u00e9 \\u20ac \\U0001f600"
print(sys.flags.no_site, sys.flags.isolated, sys.stdout.encoding, sys.getfilesystemencoding(), codecs.lookup("utf-8").name)
for name in ("utf-8", "utf8", "UTF_8", "utf-16", "latin-1", "ascii", "cp1252", "idna", "punycode"):
    print(name, codecs.lookup(name).name, codecs.encode("abc", name), codecs.decode(codecs.encode("abc", name), name))
for errors in ("strict", "replace", "surrogateescape", "ignore"):
    for data in (b"h\\xc3\\xa9", b"h\\xc3", b"\\xff\\xfe a", text.encode()):
        try:
            print(errors, ascii(codecs.decode(data, "utf-8", errors)))
        except UnicodeDecodeError as error:
            print(errors, error)
decoder, encoder = codecs.getincrementaldecoder("utf-8")(), codecs.getincrementalencoder("utf-8")()
print([ascii(decoder.decode(bytes((byte,)))) for byte in text.encode()], ascii(decoder.decode(b"", True)), encoder.encode(text))
import io
print(ascii(codecs.getreader("utf-8")(io.BytesIO(text.encode())).read()))
codecs.getwriter("utf-8")(sink := io.BytesIO()).write(text)
print(sink.getvalue(), codecs.lookup("utf-8").streamreader.__name__)
import encodings
print(sorted(n for n in dir(encodings) if n in ("aliases", "normalize_encoding", "CodecRegistryError", "search_function")))
from encodings import aliases, idna
print(encodings.normalize_encoding("a b"), aliases.aliases["latin1"], idna.ToASCII("abc"), encodings.__path__)
try:
    codecs.lookup("no such codec")
except LookupError as error:
    print(error)
"""
BEFORE = "import encodings; encodings.open_library(encodings.library())\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("start")
    shutil.copy(ROOT / "_build" / "start.py", path / "encodings.py")
    (path / "python._pth").write_text(".\n")
    (path / "linecache.py").write_text("def _register_code(*arguments):\n    pass\n")
    return path


def started(folder, code, **options):
    words = [str(folder / "python"), "-IS", "-c", code]
    return subprocess.run(words, executable=sys.executable, capture_output=True, text=True, **options)


@pytest.mark.parametrize("first", ["", "codecs.lookup('latin-1')", "codecs.getreader('utf-8')", "import encodings.idna"])
def test_codecs_are_the_real_ones(folder, first):
    code = LOOKS.replace("import codecs\n", f"import codecs\n{first}\n", 1)
    found = started(folder, BEFORE + code)
    wanted = subprocess.run([sys.executable, "-IS", "-c", code], capture_output=True, text=True)
    assert wanted.returncode == 0, wanted.stderr
    assert found.stdout == wanted.stdout, found.stderr


def test_streams_decode_and_encode(folder):
    code = "import sys; sys.stdout.write(ascii(sys.stdin.read(3)) + sys.stdin.read()); print(sys.stdin.readline() == '')"
    found = started(folder, code, input="h\u00e9\u20ac \U0001f600\n")
    assert found.stdout == "'h\\xe9\\u20ac' \U0001f600\nTrue\n", found.stderr


def test_the_library_is_not_looked_for(folder):
    found = started(folder, "import sys; print(sys.path)")
    assert found.stdout == f"{[str(folder)]}\n", found.stderr


def test_an_installed_command_starts_there_and_falls_back(wheel, tmp_path):  # noqa: F811
    bin_folder = install(tmp_path / "venv", wheel)
    start = next(tmp_path.glob("venv/lib/python3*/site-packages/reflex/cache/start-*"))
    code = start / "encodings.py"
    text = code.read_text()

    def smoke():
        done = subprocess.run([bin_folder / "reflex", "smoke", "--json"], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert '"result"' in done.stdout
        return "seen" in done.stderr

    assert not smoke()
    code.write_text(f"{text}\nimport posix\nposix.write(2, b'seen')\n")
    assert smoke(), "started without the folder"
    (start / "python._pth").rename(start / "hidden")
    assert not smoke()
    (start / "hidden").rename(start / "python._pth")
    code.write_text(text.replace("os.py", "no.py"))  # as where Python's library lies elsewhere
    assert not smoke()
