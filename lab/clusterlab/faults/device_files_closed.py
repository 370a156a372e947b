"""The GPUs' device files are root's alone, as by a udev rule or the driver's NVreg_DeviceFileMode."""

from __future__ import annotations

from clusterlab.faults.on_host import scripted

FAULT = scripted(
    "device-files-closed",
    "only root may open the GPUs' device files, until the node reboots",
    inject="chmod 0660 /dev/nvidia[0-9]*",
    clear="chmod -f 0666 /dev/nvidia[0-9]* || true",
    caught_by=("container-user",),
)
