"""What the NVIDIA driver tells of a device that a framework does not, with its library played."""

from __future__ import annotations

from clustercheck.jobs.backends import driver


class Cuda:
    """The driver's functions, one of which may refuse."""

    def __init__(self, refuses: str = "") -> None:
        self._refuses = refuses

    def _answer(self, name: str) -> int:
        return 999 if name == self._refuses else 0

    def cuInit(self, flags):
        return self._answer("cuInit")

    def cuDeviceGet(self, device, number):
        device._obj.value = number + 10
        return self._answer("cuDeviceGet")

    def cuDeviceGetPCIBusId(self, text, length, device):
        assert device.value == 12
        assert length == len(text)
        text.value = b"0000:3B:00.0"
        return self._answer("cuDeviceGetPCIBusId")

    def cuDeviceGetAttribute(self, value, attribute, device):
        assert (attribute, device.value) == (38, 12)
        value._obj.value = 41943040
        return self._answer("cuDeviceGetAttribute")

    def cuMemGetInfo_v2(self, free, total):
        free._obj.value, total._obj.value = 3 << 32, 5 << 32
        return self._answer("cuMemGetInfo_v2")


def test_the_driver_tells_what_paddle_does_not():
    device = driver.Driver(2, Cuda())
    told = (device.pci_address(), device.l2_bytes(), device.free_bytes())
    assert told == ("0000:3b:00.0", 41943040, 3 << 32)
    for name, place in (("cuDeviceGetPCIBusId", 0), ("cuDeviceGetAttribute", 1), ("cuMemGetInfo_v2", 2)):
        device = driver.Driver(2, Cuda(name))
        each = (device.pci_address(), device.l2_bytes(), device.free_bytes())
        assert [i for i, one in enumerate(each) if one is None] == [place]
    for name in ("cuInit", "cuDeviceGet"):
        device = driver.Driver(2, Cuda(name))
        assert (device.pci_address(), device.l2_bytes(), device.free_bytes()) == (None, None, None)


def test_a_machine_without_the_driver_tells_nothing(monkeypatch):
    monkeypatch.setattr(driver, "LIBRARY", "libnone.so.0")
    device = driver.Driver(0)
    assert (device.pci_address(), device.l2_bytes(), device.free_bytes()) == (None, None, None)


def test_the_driver_tells_the_rates_that_ceilings_are_made_of():
    class Library:
        def __getattr__(self, name):
            return lambda *arguments: 0

        def cuDeviceGetAttribute(self, value, number, device):
            known = {13: 1410000, 36: 1593000, 37: 5120, 75: 8, 76: 0}
            value._obj.value = known.get(number, 0)
            return 0 if number in known else 1

    assert driver.Driver(0, Library()).rates() == {
        "sm_clock_khz": 1410000,
        "memory_clock_khz": 1593000,
        "memory_bus_bits": 5120,
        "compute_capability": 80,
    }
