#!python
# The program reflex-sidecar.
import gc

gc.disable()  # nothing to collect among modules that are just being imported
from reflex.sidecar.main import main  # noqa: E402

main()
