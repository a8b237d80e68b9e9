"""The notebooks of examples/ run as they are, from the first cell to the last, and are committed without what they printed."""

import json
import os
import time
from pathlib import Path

import pytest
from real import locate

FOLDER = Path(__file__).parents[2] / "examples"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
SECONDS = 300  # of a machine with other work; a minute is meant for two idle cores


def test_there_are_notebooks():
    assert len(NOTEBOOKS) >= 3


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_committed_without_outputs(path):
    text = path.read_text()
    for cell in json.loads(text)["cells"]:
        assert cell["cell_type"] == "markdown" or (cell["outputs"] == [] and cell["execution_count"] is None), "strip the outputs"
    assert text == json.dumps(json.loads(text), indent=1, ensure_ascii=False) + "\n"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs(path, tmp_path, monkeypatch):
    """In a kernel of its own, in the folder where it lies; every cell without an error, with pictures among what they show."""
    nbformat = pytest.importorskip("nbformat")
    client = pytest.importorskip("nbclient")
    for needed in ("ipykernel", "matplotlib", "pandas"):
        pytest.importorskip(needed)
    locate("smollm2")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(FOLDER.parent) + os.pathsep + os.environ.get("PYTHONPATH", ""))
    notebook = nbformat.read(path, 4)
    start = time.monotonic()
    client.NotebookClient(notebook, timeout=SECONDS, resources={"metadata": {"path": str(FOLDER)}}).execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    print(f"{path.stem}: {time.monotonic() - start:.1f} s")
    assert not [output for output in outputs if output.output_type == "error"]
    assert sum("image/png" in output.get("data", {}) for output in outputs) >= 2
