"""The ahead-of-time compiler: same bytes every time, nothing compiled twice, nothing linked that needs a library."""

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from reflex import native
from reflex.kernels import system
from reflex.kernels.linker import LinkError, link
from reflex.kernels.target import TARGETS, environment

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
import precompile  # noqa: E402

llvm = pytest.importorskip("llvmlite.binding")


def compiled(stem, level):
    """The object of one kernel file, compiled in a process of its own."""
    code = f"import sys; from reflex.kernels.compile import compile_stem; sys.stdout.buffer.write(compile_stem({stem!r})[0])"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env={**os.environ, **environment(TARGETS[level])}, capture_output=True
    )
    assert done.returncode == 0, done.stderr.decode()[-500:]
    return done.stdout


def object_of(text):
    """An x86-64 object from LLVM assembly."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple("x86_64-unknown-linux-gnu").create_target_machine(reloc="pic", codemodel="small")
    return machine.emit_object(llvm.parse_assembly(text))


def test_same_bytes_every_time():
    level = native.library().level
    first, second = (hashlib.sha256(compiled("logits", level)).hexdigest() for _ in range(2))
    assert first == second


@pytest.mark.parametrize("stem", ["fetch", "lost_page", "ring", "starter"])
def test_system_calls_compile_for_another_machine(stem):
    """Their instruction is there as a constant, which no assembler had to read; see reflex/kernels/system.py."""
    code = b"".join(word.to_bytes(4, "little") for word in system.ARM_CODE)
    blob, _ = link([(stem, compiled(stem, "aarch64"))], {})
    assert blob.count(code) == 1 and (0xD4000001).to_bytes(4, "little") in code


def test_arm_code_is_compiled_and_linked():
    blob, symbols = link([("quantize", compiled("quantize", "aarch64"))], {"table": b"abc"})
    assert {"quantize_rows", "quantize_columns", "table"} <= set(symbols)
    assert blob[symbols["table"] :][:3] == b"abc"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("declare double @sin(double)\ndefine double @f(double %x) { %y = call double @sin(double %x)\n ret double %y }", "sin"),
        ("@g = global i64 7\ndefine i64 @f() { %x = load i64, ptr @g\n ret i64 %x }", "writable section|relocation"),
        ("@g = external global i64\ndefine i64 @f() { %x = load i64, ptr @g\n ret i64 %x }", "g"),
    ],
)
def test_what_needs_a_library_or_data_is_refused(text, complaint):
    with pytest.raises(LinkError, match=complaint):
        link([("bad", object_of(text))], {})


def test_objects_call_each_other():
    caller = object_of("declare i64 @g(i64)\ndefine i64 @f(i64 %x) { %y = call i64 @g(i64 %x)\n %z = add i64 %y, 1\n ret i64 %z }")
    callee = object_of("define i64 @g(i64 %x) { %y = mul i64 %x, 3\n ret i64 %y }")
    assert set(link([("caller", caller), ("callee", callee)], {})[1]) == {"f", "g"}
    with pytest.raises(LinkError, match="twice"):
        link([("callee", callee), ("again", callee)], {})


def test_a_kernel_depends_on_what_it_imports():
    files = {p.relative_to(ROOT).as_posix() for p in precompile.sources(precompile.HOST / "linear_small.py")}
    assert {"reflex/kernels/dot.py", "reflex/kernels/vector.py", "reflex/quant/q4_0.py", "reflex/quant/lanes.py"} <= files
    assert not any(name.startswith(("reflex/gguf/", "reflex/cli/")) for name in files)


@pytest.fixture
def copy(tmp_path, monkeypatch):
    """precompile working on a copy of cache/."""
    shutil.copytree(precompile.CACHE, tmp_path / "cache")
    monkeypatch.setattr(precompile, "CACHE", tmp_path / "cache")
    return tmp_path / "cache"


def test_nothing_is_compiled_again(copy, monkeypatch, capfd):
    names = [path.stem for path in sorted(copy.glob("*-*.bin"))]
    before = {path.name: path.read_bytes() for path in copy.glob("*.bin")}
    monkeypatch.setattr(subprocess, "Popen", lambda *a, **k: pytest.fail("a compiler was started"))
    precompile.build([name.partition("-")[2] for name in names], 1)
    assert {path.name: path.read_bytes() for path in copy.glob("*.bin")} == before


def test_numba_made_faster_gives_the_same_bytes():
    level = native.library().level
    code = "import sys; from reflex.kernels import memo; memo.install({cuda}); {compile}"
    linked = "from reflex.kernels.linker import link; from reflex.kernels.compile import compile_stem as f; print("
    ways = {
        "host": linked + "*[link([(stem, f(stem)[0])], {}) for stem in ('rope', 'logits')])",
        "cuda": "from reflex.kernels.cuda.compile import facts_of as f; print(f('add'), f('attention_inputs'))",
    }
    for kind, compile in ways.items():
        if kind == "cuda" and importlib.util.find_spec("numba_cuda") is None:
            continue
        faster = code.format(cuda=kind == "cuda", compile=compile)
        plain = f"import sys; {compile}"
        env = {**os.environ, **environment(TARGETS[level])}
        out = [subprocess.run([sys.executable, "-c", c], cwd=ROOT, env=env, capture_output=True) for c in (faster, plain)]
        assert all(done.returncode == 0 for done in out), out[0].stderr.decode()[-500:]
        assert out[0].stdout == out[1].stdout and len(out[0].stdout) > 1000


class Recorder:
    """A compiler that only writes down what it is asked for; `fails`: a file that it cannot compile."""

    asked, fails = [], None

    def __init__(self, level):
        self.level = level
        self.asked.append(level)

    def compile(self, stem):
        self.asked.append(stem)
        return stem != self.fails

    def close(self):
        self.asked.append("closed")


def test_compilers_take_the_next_file_of_their_level(monkeypatch):
    monkeypatch.setattr(precompile, "Compiler", Recorder)
    monkeypatch.setattr(Recorder, "asked", [])
    tasks = [("cuda", "a"), ("cuda", "b"), ("x86-64-v3", "a")]
    precompile.compile_all(tasks, 1)
    assert Recorder.asked == ["cuda", "a", "b", "closed", "x86-64-v3", "a", "closed"]
    Recorder.asked.clear()
    precompile.compile_all(tasks, 3)
    assert sorted(name for name in Recorder.asked if len(name) == 1) == ["a", "a", "b"]
    monkeypatch.setattr(Recorder, "fails", "b")
    Recorder.asked.clear()
    with pytest.raises(SystemExit, match="does not compile: b for cuda"):
        precompile.compile_all(tasks, 1)
    assert Recorder.asked == ["cuda", "a", "b", "closed"]


def test_long_files_come_first(monkeypatch, tmp_path):
    monkeypatch.setattr(precompile, "OBJECTS", tmp_path)
    names = [stem for _, stem in precompile.host_tasks(["aarch64"])]
    assert sorted(names) == precompile.stems() and names.index("linear_small") < names.index("attention") < names.index("smoke")


def test_an_edit_during_the_build_is_one_line(copy, monkeypatch):
    level = native.library().level
    monkeypatch.setattr(precompile, "compile_all", lambda tasks, jobs: None)
    manifest = (copy / "manifest.json").read_bytes()
    real, calls = precompile.fingerprint, []

    def edited(stem, level):
        calls.append(stem)
        return real(stem, level) if stem != "rope" or calls.count("rope") < 3 else "edited"

    monkeypatch.setattr(precompile, "fingerprint", edited)
    with pytest.raises(SystemExit, match="sources of rope were edited during the build: run it again"):
        precompile.build([level], 1)
    assert (copy / "manifest.json").read_bytes() == manifest


@pytest.mark.parametrize("kind", ["host", "cuda"])
def test_check_finds_damage(copy, kind):
    assert precompile.check() == []
    blob = next(copy.glob(f"{kind}-*.bin"), None)
    if blob is None:
        pytest.skip(f"cache/ holds no {kind} kernels")
    blob.write_bytes(blob.read_bytes()[:-1] + b"x")
    assert any("does not match" in line for line in precompile.check())
    blob.unlink()
    assert any("missing" in line for line in precompile.check())
    (copy / "manifest.json").unlink()
    assert any("manifest.json" in line for line in precompile.check())
