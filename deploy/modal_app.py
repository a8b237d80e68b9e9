"""A Modal app: a model on a GPU that answers requests of docs/worker.md, and scores a list of them in parallel containers.

    modal run deploy/modal_app.py --request '{"command": "system1", "prompt": "2 + 2 =", "candidates": [" 4", " 5"]}'
    modal deploy deploy/modal_app.py

The wheel is expected in dist/ (`make wheel`), the model in a Modal volume named `models`. Needs the package modal.
"""

import json
from pathlib import Path

import modal

from reflex.integrations.held import Held

ROOT = Path(__file__).resolve().parent.parent
MODEL, OPTIONS = "/models/model.gguf", "--ctx 4096"
GPU = "H100"  # None computes on the CPU

wheels = sorted((ROOT / "dist").glob("reflex_gguf-*.whl")) if modal.is_local() else []
image = modal.Image.debian_slim(python_version="3.11").env({"REFLEX_MODEL": MODEL, "REFLEX_OPTIONS": OPTIONS})
for wheel in wheels:  # one layer of ten megabytes; the model is in none
    image = image.add_local_file(wheel, f"/root/{wheel.name}", copy=True).run_commands(f"pip install --no-deps /root/{wheel.name}")

app = modal.App("reflex", image=image)
models = modal.Volume.from_name("models", create_if_missing=True)


@app.cls(gpu=GPU, volumes={"/models": models}, scaledown_window=60, enable_memory_snapshot=True)
class Model:
    """A container with a worker."""

    @modal.enter()
    def start(self):
        """Load the model. After a snapshot's restore: a snapshot of the CPU's memory cannot hold what is on a GPU."""
        self.held = Held()
        self.held.start()

    @modal.method()
    def ask(self, request: dict) -> dict:
        """The answer to a request, or {"error": ...}."""
        return self.held(request)

    @modal.method()
    def stream(self, request: dict):
        """The tokens of a request as they come, then its result."""
        yield from self.held.stream({**request, "stream": True})

    @modal.exit()
    def stop(self):
        """End the worker."""
        self.held.close()


@app.local_entrypoint()
def main(request: str):
    """Ask one request from a terminal."""
    print(json.dumps(Model().ask.remote(json.loads(request))))
