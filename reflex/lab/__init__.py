"""The lab: looking inside a model, changing it, and measuring what that does. Never imported on the cold path"""

from .compare import compare
from .perplexity import perplexity

__all__ = ["compare", "perplexity"]
