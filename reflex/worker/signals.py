"""SIGTERM and SIGINT for a process that is to end in order: they are noted, and whoever waits is woken.

While the model is loaded, and when a signal comes a second time, it ends the work where it stands (KeyboardInterrupt).
"""

import _signal
from posix import O_CLOEXEC, O_NONBLOCK, pipe2

CODES = {_signal.SIGTERM: 0, _signal.SIGINT: 130}  # exit codes of the process


class Signals:
    """`number`: the signal that came, else 0. `wake`: a descriptor that is readable from then on."""

    def __init__(self):
        self.number = 0
        self.patient = False
        self.wake, sender = pipe2(O_NONBLOCK | O_CLOEXEC)
        _signal.set_wakeup_fd(sender, warn_on_full_buffer=False)
        for number in CODES:
            if _signal.getsignal(number) != _signal.SIG_IGN:  # where the caller has it ignored, it stays so
                _signal.signal(number, self)

    def __call__(self, number, frame):
        patient, self.patient = self.patient and not self.number, False
        self.number = number
        if not patient:
            raise KeyboardInterrupt

    @property
    def code(self):
        """The exit code that the signal asks for."""
        return CODES.get(self.number, 0)
