"""The lab: looking inside a model, changing it, and measuring what that does. Never imported on the cold path"""

from .compare import Compared, Comparing, compare
from .divergence import Divergence
from .perplexity import Perplexity, Scoring, perplexity
from .sensitivity import Scan, Sensitivity, Swapped, sensitivity
from .tensors import TensorDifference
from .text import TEXT

__all__ = ["TEXT", "Compared", "Comparing", "Divergence", "Perplexity", "Scan", "Scoring", "Sensitivity", "Swapped"]
__all__ += ["TensorDifference", "compare", "perplexity", "sensitivity"]
