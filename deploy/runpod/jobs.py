"""Runpod's queue: a job's `input` is a request of docs/worker.md, its output the answer; with `stream` the tokens as they come.

    python jobs.py                   as Runpod runs it, in the image
    python jobs.py --rp_serve_api    a server like Runpod's, here: POST /runsync with {"input": {"command": "health"}}

REFLEX_MODEL names the model, REFLEX_OPTIONS has options for it (--ctx 4096). Needs the package runpod.
"""

from reflex.integrations.held import Held

held = Held()


def handler(job):
    """The answers to a job: Runpod streams what is yielded, and returns all of it as a list. An error fails the job."""
    yield from held.stream(job["input"])


def main():
    """Load the model, then take jobs until Runpod ends the container."""
    import runpod

    held.start()
    runpod.serverless.start({"handler": handler, "return_aggregate_stream": True})


if __name__ == "__main__":
    main()
