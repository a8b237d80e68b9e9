"""Joules of a call, from a device whose clock and counters the test moves: exact sums, one reading at each end, no silent guess."""

import threading
import time
import types

import pytest

from reflex import energy
from reflex.errors import DeviceError, InvalidInputError

UUID = "a0" * 16
NAME = f"GPU-{UUID[:8]}-{UUID[:4]}-{UUID[:4]}-{UUID[:4]}-{UUID[:12]}"


class Refused(Exception):
    """NVMLError of the fake."""


class NotSupported(Refused):
    """That of a reading which a device has not."""


class Nvml:
    """NVML over one or more devices that take `watts`, and `extra` joules on top; counters move every `period` seconds."""

    NVMLError, NVMLError_NotSupported = Refused, NotSupported

    def __init__(self, watts=(60.0,), period=0.1, counter=True, power=True):
        self.watts, self.period, self.counter, self.power = list(watts), period, counter, power
        self.extra = [0.0] * len(self.watts)
        self.now = 1000.0
        self.readings = 0
        self.lost = False

    def clock(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds

    def nvmlDeviceGetCount(self):
        return len(self.watts)

    def nvmlDeviceGetHandleByIndex(self, number):
        return number

    def nvmlDeviceGetUUID(self, number):
        return NAME if number == 0 else f"GPU-{number}"

    def nvmlDeviceGetName(self, number):
        return f"device {number}"

    def nvmlDeviceGetHandleByUUID(self, name):
        if name != f"MIG-{NAME[4:].replace('a0', 'b0')}":
            raise Refused("Not Found")
        return "instance"

    def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, handle):
        assert handle == "instance"
        return 0

    def nvmlDeviceGetTotalEnergyConsumption(self, number):
        if not self.counter:
            raise NotSupported("Not Supported")
        if self.lost:
            raise Refused("GPU is lost")
        self.readings += 1
        return round(1000 * (self.now // self.period * self.period * self.watts[number] + self.extra[number]))

    def nvmlDeviceGetPowerUsage(self, number):
        if not self.power:
            raise NotSupported("Not Supported")
        return round(1000 * self.watts[number])


def meter_of(nvml, uuid=UUID):
    meter = energy.Meter("cuda", nvml, nvml.clock, nvml.sleep)
    meter.plan = types.SimpleNamespace(device=types.SimpleNamespace(uuid=uuid, synchronize=lambda: nvml.sleep(0.05)))
    return meter


def test_idle_is_subtracted_and_both_ends_are_updates():
    nvml = Nvml()
    meter = meter_of(nvml)
    assert meter.idle[NAME] == pytest.approx(60.0, rel=0.01)
    nvml.sleep(0.537)
    nvml.extra[0] = 41.5
    found = meter.result()
    assert found["method"] == "total energy counter" and found["device"] == "device 0"
    assert found["joules"] == pytest.approx(41.5, abs=0.5)  # 60 W for the few ms between an update and the reading of it
    assert found["gross_joules"] == pytest.approx(41.5 + 60 * found["seconds"], abs=0.5)
    assert 0.5 < found["seconds"] < 0.537 + 0.05 + 2 * nvml.period  # no further than the next update
    assert set(found) == {"method", "device", "joules", "gross_joules", "idle_watts", "seconds"}


@pytest.mark.parametrize("length", [0.0, 0.01, 0.09, 0.5])
def test_a_short_call_is_not_lost_between_two_updates(length):
    nvml = Nvml()
    meter = meter_of(nvml)
    nvml.sleep(length)
    nvml.extra[0] = 5.0
    assert meter.result()["joules"] == pytest.approx(5.0, abs=0.5)


def test_a_counter_that_stands_still_is_waited_for_half_a_second():
    nvml = Nvml(watts=[0.0])
    meter = meter_of(nvml)
    assert meter.idle[NAME] == 0.0
    before = nvml.now
    assert meter.result()["joules"] == 0.0
    assert nvml.now - before == pytest.approx(0.55, abs=0.01)


def test_restart_forgets_what_was():
    nvml = Nvml()
    meter = meter_of(nvml)
    nvml.extra[0] = 900.0
    meter.restart()
    nvml.extra[0] += 3.0
    assert meter.result()["joules"] == pytest.approx(3.0, abs=0.5)


def test_the_device_in_use_is_meant_among_several():
    nvml = Nvml(watts=[60.0, 70.0, 80.0])
    meter = meter_of(nvml)
    nvml.extra = [7.0, 500.0, 900.0]
    assert meter.result()["joules"] == pytest.approx(7.0, abs=0.7)


def test_an_instance_is_measured_as_its_whole_device():
    nvml = Nvml()
    meter = meter_of(nvml, UUID.replace("a0", "b0"))
    nvml.extra[0] = 9.0
    assert meter.result()["joules"] == pytest.approx(9.0, abs=0.5)


def test_without_a_counter_the_power_is_sampled():
    nvml = Nvml(watts=[20.0], counter=False)
    here, until = threading.get_ident(), [nvml.now]

    def sleep(seconds):
        """The clock is moved by the thread that samples, as far as the other one waits for it."""
        if threading.get_ident() == here:
            until[0] = nvml.now + seconds
        while (nvml.now < until[0]) == (threading.get_ident() == here):
            time.sleep(0.0005)
        if threading.get_ident() != here:
            nvml.now += seconds

    meter = energy.Meter("cuda", nvml, nvml.clock, sleep)
    device = meter.devices[NAME]
    assert device.method == "sampled power" and meter.idle[NAME] == pytest.approx(20.0, rel=0.1)
    nvml.watts[0] = 120.0
    meter.restart()
    sleep(2.0)
    meter.plan = types.SimpleNamespace(device=types.SimpleNamespace(uuid=UUID, synchronize=lambda: None))
    found = meter.result()
    assert found["method"] == "sampled power"
    assert found["joules"] == pytest.approx(100.0 * found["seconds"], rel=0.1)
    meter.close()
    until[0] = float("inf")


def test_a_thread_that_cannot_read_says_so():
    nvml = Nvml(counter=False)
    meter = meter_of(nvml)
    nvml.power = False
    with pytest.raises(DeviceError, match=r"NVML does not tell the energy.*Not Supported"):
        for _ in range(1000):
            meter.restart()
    meter.close()


ERRORS = [
    (lambda: meter_of(Nvml(counter=False, power=False)), DeviceError, "no device tells its energy or its power"),
    (lambda: meter_of(Nvml(watts=[])), DeviceError, "no device tells its energy or its power"),
    (lambda: meter_of(Nvml(), "cc" * 16).result(), DeviceError, "the device in use tells no energy"),
    (lambda: energy.Meter("cpu", Nvml()), InvalidInputError, "energy is measured on GPUs alone"),
    (lambda: energy.Meter("reference", Nvml()), InvalidInputError, "energy is measured on GPUs alone"),
]


@pytest.mark.parametrize("action, kind, words", ERRORS, ids=range(len(ERRORS)))
def test_errors_are_typed(action, kind, words):
    with pytest.raises(kind, match=words) as caught:
        action()
    assert caught.value.remedy and len(caught.value.line().splitlines()) == 1


def test_a_lost_device_and_an_unused_one():
    nvml = Nvml()
    meter = meter_of(nvml)
    nvml.lost = True
    with pytest.raises(DeviceError, match="GPU is lost"):
        meter.result()
    meter.plan = types.SimpleNamespace()
    with pytest.raises(DeviceError, match="nothing was computed on a GPU"):
        meter.result()


def test_the_line_for_a_person():
    nvml = Nvml()
    line = energy.text(meter_of(nvml).result())
    assert "W when idle (total energy counter, device 0)" in line and " J in " in line
