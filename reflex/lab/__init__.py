"""The lab: looking inside a model, changing it, and measuring what that does. Never imported on the cold path"""

from .compare import Compared, Comparing, compare
from .divergence import Divergence
from .imatrix import Importance
from .importance import Collecting, importance
from .perplexity import Perplexity, Scoring, perplexity
from .sensitivity import Scan, Sensitivity, Swapped, sensitivity
from .tensors import TensorDifference
from .text import TEXT

__all__ = ["TEXT", "Collecting", "Compared", "Comparing", "Divergence", "Importance", "Perplexity", "Scan", "Scoring"]
__all__ += ["Sensitivity", "Swapped", "TensorDifference", "compare", "importance", "perplexity", "sensitivity"]
