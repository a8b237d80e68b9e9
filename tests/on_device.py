"""Programs that the cuda backend refuses: their tests are skipped, by the backend's own word."""

import pytest

from reflex.backends.cuda.lowering import lowering
from reflex.errors import UnsupportedError


def skip_refused(program):
    """Skips the running test where there are no launches for an operation of the program."""
    try:
        lowering(program)
    except UnsupportedError as error:
        assert program.architecture in str(error)
        assert "--backend cpu" in str(error)
        pytest.skip(str(error))
