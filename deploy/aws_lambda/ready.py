"""What Lambda imports: the handler, with the model loaded. Lambda takes a failure here for one of the environment's start."""

from handler import handler, held

held.start()

__all__ = ["handler"]
