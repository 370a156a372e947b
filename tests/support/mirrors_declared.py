"""What the tests of mirrors share: mirrors as they are declared, and the model of them."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.clusterctl.cluster.plugins.module_utils import registry_mirrors

CA = "/usr/local/share/ca-certificates/clusterctl-mysite.crt"
needs_containerd = pytest.mark.needs("root", "containerd", "ctr")


def model(*declared: dict[str, Any], fail_closed: bool = False) -> dict[str, list[registry_mirrors.Mirror]]:
    return registry_mirrors.read_mirrors(declared, fail_closed=fail_closed)


HUB = {"upstream": "docker.io", "url": "https://harbor.lan/dockerhub"}
