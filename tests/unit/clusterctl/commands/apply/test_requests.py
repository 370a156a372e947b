"""What apply and plan refuse, leave out and hand on of a request. Ansible is played by data."""

from __future__ import annotations

import pytest

from clusterctl.runs.store import RunStore


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["apply"], "there is no terminal to ask on"),
        (["apply", "--yes", "--only", "drivr"], "Did you mean driver?"),
        (["plan", "--limit", "gpu99"], "names no host"),
    ],
)
@pytest.mark.usefixtures("no_terminal")
def test_a_wrong_request_is_answered_with_two(clusterctl, ansible, capsys, arguments, said):
    assert clusterctl(*arguments) == 2
    assert said in capsys.readouterr().err
    assert ansible.requests == []


def test_reboots_are_allowed_only_when_asked_for_and_name_the_hosts(clusterctl, ansible, capsys):
    assert clusterctl("apply", "--yes") == 0
    assert "may be rebooted" not in capsys.readouterr().err
    assert "nvidia_driver_reboot" not in ansible.requests[-1].extra_vars, "the settings have the word"
    assert clusterctl("apply", "--yes", "--reboot") == 0
    assert "hosts that may be rebooted: gpu01-gpu03\n" in capsys.readouterr().err
    assert ansible.requests[-1].extra_vars["nvidia_driver_reboot"] is True
    assert clusterctl("apply", "--yes", "--reboot", "--only", "registry") == 0
    assert "may be rebooted" not in capsys.readouterr().err


def test_what_the_settings_allow_is_said_and_heeded(clusterctl, ansible, listing, capsys):
    listing["_meta"]["hostvars"]["gpu02"] |= {"nvidia_driver_reboot": True, "nvidia_driver_force_busy": True}
    ansible.says = {host: {"busy": "a training job"} for host in ("gpu01", "gpu02")}
    assert clusterctl("apply", "--yes", "--only", "driver") == 3
    messages = capsys.readouterr().err
    assert "hosts that may be rebooted: gpu02\n" in messages
    assert "busy hosts that are changed, too: gpu02\n" in messages
    assert "gpu01" not in ansible.touched
    assert "gpu02" in ansible.touched


def test_plan_uses_the_variables_of_apply(clusterctl, ansible):
    flags = ["--reboot", "--force-busy", "--only", "driver"]
    assert clusterctl("apply", "--yes", *flags) == 0
    applied = ansible.requests[-1].extra_vars
    assert applied == {"nvidia_driver_reboot": True, "nvidia_driver_force_busy": True}
    for words in (["plan"], ["apply", "--check"]):
        assert clusterctl(*words, *flags) == 0
        assert ansible.requests[-1].check
        # What earlier waves of an apply would have done by then.
        assert ansible.requests[-1].extra_vars == {**applied, "clusterctl_waves_before": ["registry01"]}


@pytest.fixture
def with_login_host(cluster, listing):
    """A host of a group that no play of the site names."""
    with (cluster.root / "hosts.yml").open("a") as stream:
        stream.write("login:\n  hosts:\n    login01: {ansible_host: 192.0.2.9}\n")
    listing["login"] = {"hosts": ["login01"]}
    listing["all"]["children"].append("login")
    listing["_meta"]["hostvars"]["login01"] = {"ansible_host": "192.0.2.9"}
    return cluster


@pytest.mark.usefixtures("with_login_host")
def test_a_host_that_no_play_is_for_is_left_out_and_said_once(clusterctl, ansible, capsys):
    ansible.says = {"login01": {"busy": "somebody's container"}}
    assert clusterctl("apply", "--yes") == 0
    out, messages = capsys.readouterr()
    assert messages.count("login01: skipped, no play of the site is for it") == 1
    assert "untouched" in out
    assert sorted(ansible.touched) == ["gpu01", "gpu02", "gpu03", "registry01"]
    assert clusterctl("plan") == 0
    out, messages = capsys.readouterr()
    assert messages.count("login01: skipped, no play of the site is for it") == 1
    assert "plan for 4 hosts" in out
    assert "login01" not in ansible.requests[-1].hosts


@pytest.mark.usefixtures("with_login_host")
def test_a_request_that_would_do_nothing_is_refused(clusterctl, ansible, listing, capsys):
    for command in (["apply", "--yes"], ["plan"]):
        for words, said in (
            (["--limit", "login01"], "no play of the site is for login01"),
            (["--only", "images"], "--only images has nothing to do: no locked training image is declared"),
        ):
            assert clusterctl(*command, *words) == 2
            assert said in capsys.readouterr().err
    listing["registry"]["hosts"].clear()
    assert clusterctl("apply", "--yes", "--only", "registry") == 2
    assert "no host is in the group registry" in capsys.readouterr().err
    assert ansible.requests == []


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"training_image_digest": "sha256:" + "0" * 64}, "there is no registry to pull the image from"),
        ({"training_image_enabled": True}, "no training_image_digest is declared"),
    ],
)
def test_settings_that_cannot_go_together_are_refused(
    *, clusterctl, cluster, listing, capsys, settings, said
):
    listing["registry"]["hosts"].clear()
    listing["_meta"]["hostvars"].pop("registry01")
    listing["_meta"]["hostvars"]["gpu01"] |= settings
    assert clusterctl("apply", "--yes") == 2
    assert said in capsys.readouterr().err
    assert RunStore(cluster).list() == []


@pytest.mark.parametrize("words", [["plan"], ["apply", "--check"], ["apply"]])
def test_preflight_alone_is_preflight_alone(clusterctl, ansible, words):
    assert clusterctl(*words, "--only", "preflight") == 0
    assert [request.playbook for request in ansible.requests] == ["preflight.yml"]


@pytest.mark.parametrize(
    "case",
    [
        ({"registry_client_robot": "build"}, "registry_client_robot"),
        ({"registry_client_address": "other.example.org:443"}, "registry_client_address"),
        ({"registry_client_user": "{{ inventory_hostname }}"}, "registry_client_user"),
        ({"registry_client_auth": "htpasswd"}, "registry_client_auth"),
        ({"registry_client_auth": "anonymous", "registry_client_robot": "build"}, None),
    ],
)
def test_no_host_pulls_with_the_credentials_of_another(clusterctl, ansible, listing, capsys, case):
    """Roles keep one file of credentials; that of the first host would be on all."""
    of_one, named = case
    variables = listing["_meta"]["hostvars"]
    for host in variables.values():
        host |= {"registry_client_auth": "robot", "registry_client_robot": "nodes"}
    variables["gpu02"] |= of_one
    assert clusterctl("apply", "--yes") == (2 if named else 0)
    said = capsys.readouterr().err
    if named:
        assert ansible.requests == []
        assert f"gpu02 and gpu01 differ in {named}: all hosts pull as the same user" in said
