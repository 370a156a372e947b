"""The driver does not answer: nvidia-smi hangs, as where a GPU's firmware does."""

from __future__ import annotations

from clusterlab.faults.on_host import covering

FAULT = covering(
    "driver-hung",
    "nvidia-smi does not answer, until the node reboots",
    place="/usr/bin/nvidia-smi",
    content="echo '#!/bin/sh'\necho 'exec sleep 600'",
    caught_by=("gpu-driver",),
)
