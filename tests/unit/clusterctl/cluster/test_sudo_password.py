"""A host that hangs while it is asked for its verdict on the password keeps no other from working."""

from __future__ import annotations

import threading

from clusterctl.cluster.sudo_password import PasswordTrial


def test_a_host_that_took_it_does_not_wait_for_one_that_hangs() -> None:
    trial, asked, goes_on = PasswordTrial(), threading.Event(), threading.Event()
    trial.require("gpu01", lambda: trial.take("gpu01"))

    def hang() -> None:
        asked.set()
        assert goes_on.wait(30)

    hanging = threading.Thread(target=trial.require, args=("gpu02", hang))
    hanging.start()
    assert asked.wait(30)
    again = threading.Thread(target=trial.require, args=("gpu01", hang), daemon=True)
    again.start()
    again.join(30)
    assert not again.is_alive()
    goes_on.set()
    hanging.join(30)
