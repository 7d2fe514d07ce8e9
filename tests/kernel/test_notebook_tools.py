"""A notebook with GPU cells, executed and saved by the tools that people use."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

pytestmark = pytest.mark.processes


def test_a_notebook_is_executed_without_a_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    cells = [
        "%load_ext gpulease\n%gpu connect local",
        "numbers = [1, 2]",
        "%%gpu\nimport os\nprint('away')\nnumbers.append(3)\nos.getpid()",
        "import os\n(numbers, os.getpid())",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in cells])
    resources = {"metadata": {"path": str(tmp_path)}}
    client = NotebookClient(notebook, timeout=120, kernel_name="python3", resources=resources)
    client.execute()
    away, home = notebook.cells[2], notebook.cells[3]
    assert away.source == cells[2]
    assert [output.output_type for output in away.outputs] == ["stream", "execute_result"]
    assert away.outputs[0].text == "away\n"
    pid = away.outputs[1].data["text/plain"]
    shown = home.outputs[-1].data["text/plain"]
    assert shown.startswith("([1, 2, 3], ")
    assert pid not in shown, "it ran in another process"
    (connected, seed) = (*notebook.cells[0].outputs, None)[:2]
    assert "Connected to a companion" in connected.data["text/plain"]
    assert seed is None, "and no empty output beside it"
    nbformat.validate(notebook)
