"""The service's module on the fake device, for `wallclock serve` in a process of its own.

wallclock serve QUEUE module=tests.on_fake_device:OnFakeDevice device=cuda
"""

import pytest

from tests import devices
from wallclock.service.modules import Embedding

devices.open_device("fake", pytest.MonkeyPatch())


class OnFakeDevice(Embedding):
    """`Embedding`, in a process whose GPU is the fake one."""
