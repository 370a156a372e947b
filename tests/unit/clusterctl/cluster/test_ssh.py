"""The OpenSSH transport over a stand-in for ssh that runs the remote line here."""

from __future__ import annotations

import os
import stat
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pydantic import SecretStr

from clustercheck.launch.transport import NodeTimeoutError, NodeUnreachableError
from clusterctl.cluster.access import Passwords
from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.cluster.endpoint import endpoint
from clusterctl.cluster.inventory import Host
from clusterctl.cluster.login_gates import PARALLEL_LOGINS_PER_JUMP
from clusterctl.cluster.ssh import OpenSshTransport, reason, remote_command
from clusterctl.cluster.sudo_password import PasswordRefusedError
from clusterctl.errors import ClusterctlError

# Notes its arguments; logs in where -f is given; else runs the last word with the shell, as sshd does.
SSH = r"""#!/bin/sh
here=$(dirname "$0")
{ for word; do printf '%s\037' "$word"; done; echo; } >> "$here/calls"
[ -f "$here/refusal" ] && { cat "$here/refusal" >&2; exit 255; }
for word; do case "$word" in -f|-O) exit 0;; esac; done
exec sh -c "$word"
"""
# Asks three times, as the real one does, and notes each line that it took for a password.
SUDO = """#!/bin/sh
here=$(dirname "$0"); tries=0; asks=
printf '%s\\n' "$*" >> "$here/sudo-calls"
while [ "$1" != "--" ]; do [ "$1" = "-S" ] && asks=yes; shift; done
shift
while [ -n "$asks" ]; do
  IFS= read -r given || { echo 'sudo: no password was provided' >&2; break; }
  printf '%s\\n' "$given" >> "$here/attempts"; tries=$((tries + 1))
  [ "$given" = "open sesame" ] && exec "$@"
  [ $tries -eq 3 ] && break
  echo 'Sorry, try again.' >&2
done
[ -z "$asks" ] && exec "$@"
echo "sudo: $tries incorrect password attempts" >&2
exit 1
"""


@pytest.fixture
def ssh(tmp_path, monkeypatch):
    """A directory first on PATH, with ssh, sudo and an id that says whom we are."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in {"ssh": SSH, "sudo": SUDO, "id": "#!/bin/sh\necho 0\n"}.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    return programs


def host(name: str = "gpu01", **variables) -> Host:
    return Host(
        name, "192.0.2.7", variables.get("ansible_port", 22), "ops", ("gpu_nodes",), variables, None, {}
    )


@pytest.fixture
def transport(ssh, tmp_path):
    with OpenSshTransport(ClusterDirectory(tmp_path / "site"), [host(), host("gpu02")]) as made:
        yield made


def calls(ssh):
    return [line.split("\x1f")[:-1] for line in (ssh / "calls").read_text().split("\n")[:-1]]


def test_a_command_runs_with_its_input_and_its_own_exit_code(transport):
    done = transport.run("gpu01", ["sh", "-c", "cat; echo oh >&2; exit 7"], stdin="a 'b'\n", timeout_s=10)
    assert (done.exit_code, done.stdout, done.stderr) == (7, "a 'b'\n", "oh\n")


def test_a_commands_own_255_is_no_lost_connection(transport, ssh):
    done = transport.run("gpu01", ["sh", "-c", "echo 'curl: Connection refused' >&2; exit 255"], timeout_s=10)
    assert (done.exit_code, done.stderr) == (255, "curl: Connection refused\n")
    assert sum("-f" in call for call in calls(ssh)) == 1
    with pytest.raises(NodeUnreachableError):
        transport.run(
            "gpu01",
            ["sh", "-c", "echo 'client_loop: send disconnect: Broken pipe' >&2; exit 255"],
            timeout_s=10,
        )


def test_a_255_without_a_connection_is_a_lost_one(transport, ssh):
    assert transport.run("gpu01", ["true"], timeout_s=10).exit_code == 0
    silent = (ssh / "ssh").read_text().replace("-f|-O) exit 0", "-O) exit 255;; -f) exit 0")
    (ssh / "ssh").write_text(silent)
    with pytest.raises(NodeUnreachableError, match="the SSH connection was lost"):
        transport.run("gpu01", ["sh", "-c", "exit 255"], timeout_s=10)


def test_arguments_arrive_as_they_are(transport):
    odd = ["printf", "%s|", "a b", "$HOME", "'", '"', "*", ""]
    assert transport.run("gpu01", odd, timeout_s=10).stdout == "a b|$HOME|'|\"|*||"


def test_one_login_a_host_and_keys_always_checked(transport, ssh):
    for _ in range(3):
        transport.run("gpu01", ["true"], timeout_s=10)
    made = calls(ssh)
    logins = [call for call in made if "-f" in call]
    assert len(logins) == 1
    for call in made:
        options = [call[i + 1] for i, word in enumerate(call) if word == "-o"]
        assert options[0] == "StrictHostKeyChecking=yes"
        assert any(option.startswith("UserKnownHostsFile=") for option in options)
        assert "BatchMode=yes" in options


def test_a_connection_that_ended_while_it_was_idle_is_made_again_by_one_login(transport, ssh, monkeypatch):
    monkeypatch.setattr("clusterctl.cluster.ssh.PERSIST_S", 0)
    for _ in range(2):
        transport.run("gpu01", ["true"], timeout_s=10)
    assert sum("-f" in call for call in calls(ssh)) == 1
    (ssh / "ssh").write_text(SSH.replace("-f|-O) exit 0", "-O) exit 255;; -f) exit 0"))
    transport.run("gpu01", ["true"], timeout_s=10)
    assert sum("-f" in call for call in calls(ssh)) == 2


def test_the_inventorys_connection_variables_reach_ssh_but_cannot_switch_keys_off(ssh, tmp_path):
    node = host(
        ansible_port=2222,
        ansible_ssh_private_key_file="/keys/id",
        ansible_ssh_common_args="-o ProxyJump=bastion -o StrictHostKeyChecking=no",
    )
    with OpenSshTransport(ClusterDirectory(tmp_path), [node]) as transport:
        transport.run("gpu01", ["true"], timeout_s=10)
    call = calls(ssh)[0]
    assert call[call.index("-p") + 1] == "2222"
    assert "/keys/id" in call
    assert "ProxyJump=bastion" in call
    assert call.index("StrictHostKeyChecking=yes") < call.index("StrictHostKeyChecking=no")


def test_a_key_under_ansibles_general_name_is_used_too(ssh, tmp_path):
    node = host(ansible_private_key_file="/keys/id")
    with OpenSshTransport(ClusterDirectory(tmp_path), [node]) as transport:
        transport.run("gpu01", ["true"], timeout_s=10)
    call = calls(ssh)[0]
    assert call[call.index("-i") + 1] == "/keys/id"


@pytest.mark.parametrize("name", ["ansible_ssh_common_args", "ansible_ssh_extra_args"])
@pytest.mark.parametrize("value", ["-F 'my config", "{{ '-F \"my config' }}"])
def test_an_unclosed_quote_is_the_settings_own_error(ssh, tmp_path, name, value):
    with pytest.raises(ClusterctlError, match=f"{name} of gpu01 .* No closing quotation") as refused:
        OpenSshTransport(ClusterDirectory(tmp_path), [host(**{name: value})])
    assert (refused.value.code, refused.value.where) == ("settings.value", f"gpu01: {name}")
    assert not (ssh / "calls").exists()


@pytest.mark.parametrize("name", ["ansible_ssh_common_args", "ansible_ssh_private_key_file"])
def test_arguments_that_no_program_can_be_given_are_the_settings_own_error(ssh, tmp_path, name):
    long = host(**{name: "x" * 200_000})
    with pytest.raises(ClusterctlError, match="arguments for ssh to gpu01 have 2000") as refused:
        OpenSshTransport(ClusterDirectory(tmp_path), [long])
    assert refused.value.code == "settings.value"
    with pytest.raises(ClusterctlError, match="arguments for ssh"):
        endpoint(long, 10)


def test_a_command_past_its_time_ends_there(transport):
    begun = time.monotonic()
    with pytest.raises(NodeTimeoutError, match="sleep did not end within 1 s"):
        transport.run("gpu01", ["sleep", "30"], timeout_s=1)
    assert time.monotonic() - begun < 25


def test_a_node_that_refuses_is_unreachable_with_a_plain_reason(transport, ssh):
    (ssh / "refusal").write_text("ops@192.0.2.7: Permission denied (publickey).\n")
    with pytest.raises(NodeUnreachableError, match="SSH refused our login") as caught:
        transport.run("gpu01", ["true"], timeout_s=10)
    assert caught.value.node == "gpu01"
    (ssh / "refusal").unlink()
    assert transport.run("gpu01", ["true"], timeout_s=10).exit_code == 0


def test_an_unknown_node_is_unreachable(transport):
    with pytest.raises(NodeUnreachableError, match="not in the inventory"):
        transport.run("gpu09", ["true"], timeout_s=10)


def test_many_threads_share_one_connection(transport, ssh):
    with ThreadPoolExecutor(8) as pool:
        done = list(pool.map(lambda n: transport.run("gpu01", ["echo", str(n)], timeout_s=20), range(12)))
    assert [one.stdout for one in done] == [f"{n}\n" for n in range(12)]
    assert sum("-f" in call for call in calls(ssh)) == 1


def test_commands_that_wait_keep_no_other_from_running(transport, tmp_path):
    begun, held = tmp_path / "begun", tmp_path / "held"
    for fifo in (begun, held):
        os.mkfifo(fifo)
    reading, holding = os.open(begun, os.O_RDWR), os.open(held, os.O_RDWR)
    waiting = ["sh", "-c", f"exec 3<{held}; echo >{begun}; cat <&3"]
    with ThreadPoolExecutor(65) as pool:
        waits = [pool.submit(transport.run, "gpu01", waiting, timeout_s=20) for _ in range(65)]
        for _ in waits:
            os.read(reading, 1)
        assert transport.run("gpu01", ["echo", "stop"], timeout_s=10).stdout == "stop\n"
        os.close(holding)
        assert {wait.result().exit_code for wait in waits} == {0}
    os.close(reading)


def test_a_jump_host_that_stalls_delays_none_that_is_not_behind_it(ssh, tmp_path):
    begun, held = ssh / "begun", ssh / "held"
    for fifo in (begun, held):
        os.mkfifo(fifo)
    behind = [host(f"gpu0{number}") for number in range(9)]
    direct = Host("gpu10", "198.51.100.1", 22, "ops", ("gpu_nodes",), {})
    stalling = """for word; do case "$word" in
  -G) case "$*" in *192.0.2.7) echo proxyjump bastion;; esac; exit 0;;
  -f) case "$*" in *192.0.2.7) echo >"$here/begun"; read line <"$here/held";; esac; exit 0;;
esac; done
"""
    (ssh / "ssh").write_text(SSH.replace("for word; do case", f"{stalling}for word; do case", 1))
    reading, holding = os.open(begun, os.O_RDWR), os.open(held, os.O_RDWR)
    with (
        OpenSshTransport(ClusterDirectory(tmp_path), [*behind, direct]) as transport,
        ThreadPoolExecutor(9) as pool,
    ):
        delayed = [pool.submit(transport.run, each.name, ["true"], timeout_s=10) for each in behind]
        for _ in range(PARALLEL_LOGINS_PER_JUMP):
            os.read(reading, 1)
        assert transport.run("gpu10", ["true"], timeout_s=10).exit_code == 0
        assert not any(one.done() for one in delayed)
        os.write(holding, b"\n" * len(delayed))
        assert {one.result().exit_code for one in delayed} == {0}
    os.close(reading)
    os.close(holding)


@pytest.mark.parametrize(("drops", "reached"), [(2, True), (3, False)])
def test_a_login_that_an_sshd_drops_at_random_is_tried_again(ssh, tmp_path, drops, reached):
    dropping = """case "$*" in *" -f "*) echo >> "$here/tries"
  [ "$(wc -l < "$here/tries")" -gt %d ] && exit 0
  echo "kex_exchange_identification: Connection closed by remote host" >&2; exit 255;;
esac
"""
    (ssh / "ssh").write_text(SSH.replace("for word; do case", f"{dropping % drops}for word; do case", 1))
    with OpenSshTransport(ClusterDirectory(tmp_path), [host()]) as transport:
        if reached:
            assert transport.run("gpu01", ["true"], timeout_s=10).exit_code == 0
        else:
            with pytest.raises(NodeUnreachableError, match="kex_exchange_identification"):
                transport.run("gpu01", ["true"], timeout_s=10)
    assert len((ssh / "tries").read_text().splitlines()) == 3


def test_sockets_are_ours_alone_and_gone_at_the_end(ssh, tmp_path):
    with OpenSshTransport(ClusterDirectory(tmp_path), [host()]) as transport:
        directory = transport._sockets
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
        assert len(str(transport._socket(host()))) < 60
    assert not directory.exists()


class TestSudo:
    """Where we log in as an ordinary user."""

    @pytest.fixture(autouse=True)
    def ordinary(self, ssh):
        (ssh / "id").write_text("#!/bin/sh\necho 1000\n")

    def test_without_a_password_sudo_must_not_ask(self, transport, ssh):
        assert transport.run("gpu01", ["cat"], stdin="x\n", timeout_s=10).stdout == "x\n"
        assert (ssh / "sudo-calls").read_text().startswith("-n -- ")

    def test_the_password_goes_by_input_and_never_into_the_commands(self, ssh, tmp_path):
        passwords = Passwords(become=SecretStr("open sesame"))
        with OpenSshTransport(ClusterDirectory(tmp_path), [host()], passwords) as transport:
            done = transport.run("gpu01", ["cat"], stdin="line 1\nline 2\n", timeout_s=10)
        assert done.stdout == "line 1\nline 2\n"
        assert "sesame" not in (ssh / "calls").read_text() + (ssh / "sudo-calls").read_text()

    def test_where_sudo_wants_no_password_the_command_does_not_get_it(self, ssh, tmp_path):
        (ssh / "sudo").write_text('#!/bin/sh\nwhile [ "$1" != "--" ]; do shift; done; shift; exec "$@"\n')
        passwords = Passwords(become=SecretStr("open sesame"))
        with OpenSshTransport(ClusterDirectory(tmp_path), [host()], passwords) as transport:
            assert transport.run("gpu01", ["cat"], stdin="mine\n", timeout_s=10).stdout == "mine\n"

    def test_a_wrong_password_is_said_plainly(self, ssh, tmp_path):
        with (
            OpenSshTransport(
                ClusterDirectory(tmp_path), [host()], Passwords(become=SecretStr("wrong"))
            ) as transport,
            pytest.raises(PasswordRefusedError, match="sudo refuses us: 1 incorrect password attempt"),
        ):
            transport.run("gpu01", ["true"], timeout_s=10)

    def test_a_host_that_says_its_password_again_does_not_get_it_into_a_reason(self, ssh, tmp_path):
        (ssh / "sudo").write_text('#!/bin/sh\nread given; echo "sudo: $given is not it" >&2; exit 1\n')
        secret = "correct horse"
        with (
            OpenSshTransport(
                ClusterDirectory(tmp_path), [host()], Passwords(become=SecretStr(secret))
            ) as transport,
            pytest.raises(NodeUnreachableError) as refused,
        ):
            transport.run("gpu01", ["true"], timeout_s=10)
        assert secret not in str(refused.value) and "sudo refuses us" in str(refused.value)

    def test_a_host_that_says_its_password_again_does_not_get_it_into_what_a_command_printed(
        self, ssh, tmp_path
    ):
        passwords = Passwords(become=SecretStr("open sesame"))
        with OpenSshTransport(ClusterDirectory(tmp_path), [host()], passwords) as transport:
            done = transport.run(
                "gpu01", ["sh", "-c", "echo open sesame, they say >&2; exit 3"], timeout_s=10
            )
        assert (done.exit_code, done.stderr) == (3, "(masked), they say\n")

    @pytest.mark.usefixtures("ssh")
    def test_why_ssh_failed_is_said_without_passwords(self, tmp_path):
        passwords = Passwords(ssh=SecretStr("open sesame"))
        with OpenSshTransport(ClusterDirectory(tmp_path), [host()], passwords) as transport:
            assert transport.reason("no\nopen\0 sesame?\n", "gpu01") == "SSH: (masked)?"

    def test_a_wrong_password_is_tried_once_and_nothing_else_passes_for_one(self, ssh, tmp_path):
        """Three attempts lock an account: neither our mark nor the command's input may be the next one."""
        passwords = Passwords(become=SecretStr("wrong"))
        with OpenSshTransport(ClusterDirectory(tmp_path), [host()], passwords) as transport:
            for _ in range(3):
                with pytest.raises(PasswordRefusedError):
                    transport.run("gpu01", ["cat"], stdin='{"order": 1}\n', timeout_s=10)
        assert (ssh / "attempts").read_text() == "wrong\n"

    def test_a_password_that_two_hosts_refuse_is_tried_on_no_other(self, ssh, tmp_path):
        names = [f"gpu{number:02d}" for number in range(12)]
        passwords = Passwords(become=SecretStr("wrong"))

        def ask(name):
            with pytest.raises(PasswordRefusedError) as caught:
                transport.run(name, ["true"], timeout_s=10)
            return caught.value.because

        with (
            OpenSshTransport(ClusterDirectory(tmp_path), map(host, names), passwords) as transport,
            ThreadPoolExecutor(12) as pool,
        ):
            said = list(pool.map(ask, names))
        assert (ssh / "attempts").read_text() == "wrong\n" * 2
        assert sum("was not tried: sudo refused it on gpu" in one for one in said) == 10

    def test_one_host_that_refuses_the_password_keeps_it_from_no_other(self, ssh, tmp_path):
        passwords = Passwords(become=SecretStr("open sesame"))
        hosts = [host(f"gpu0{number}") for number in range(1, 5)]
        with OpenSshTransport(ClusterDirectory(tmp_path), hosts, passwords) as transport:
            right = (ssh / "sudo").read_text()
            (ssh / "sudo").write_text(right.replace("open sesame", "another"))
            with pytest.raises(PasswordRefusedError, match="1 incorrect") as caught:
                transport.run("gpu01", ["true"], timeout_s=10)
            assert not caught.value.is_wrong
            (ssh / "sudo").write_text(right)
            assert transport.is_password_taken()
            for name in ("gpu02", "gpu03", "gpu04"):
                assert transport.run(name, ["echo", "x"], timeout_s=10).stdout == "x\n"
            with pytest.raises(PasswordRefusedError, match="1 incorrect"):
                transport.run("gpu01", ["true"], timeout_s=10)

    def test_one_host_that_takes_a_wrong_password_does_not_have_it_tried_everywhere(self, ssh, tmp_path):
        """It could lock the account that all share."""
        passwords = Passwords(become=SecretStr("wrong"))
        names = [f"gpu{number:02d}" for number in range(12)]
        with OpenSshTransport(ClusterDirectory(tmp_path), map(host, names), passwords) as transport:
            honest = (ssh / "sudo").read_text()
            (ssh / "sudo").write_text(honest.replace("open sesame", "wrong"))
            transport.run("gpu00", ["true"], timeout_s=10)
            (ssh / "sudo").write_text(honest)
            (ssh / "attempts").unlink()

            def ask(name):
                with pytest.raises(PasswordRefusedError):
                    transport.run(name, ["true"], timeout_s=10)

            with ThreadPoolExecutor(11) as pool:
                list(pool.map(ask, names[1:]))
        assert (ssh / "attempts").read_text() == "wrong\n" * 2

    def test_where_nobody_takes_it_no_more_than_two_are_asked(self, ssh, tmp_path):
        passwords = Passwords(become=SecretStr("wrong"))
        names = [f"gpu{number:02d}" for number in range(5)]
        with OpenSshTransport(ClusterDirectory(tmp_path), map(host, names), passwords) as transport:
            assert not transport.is_password_taken()
        assert (ssh / "attempts").read_text() == "wrong\n" * 2

    def test_where_one_host_has_taken_it_another_that_refuses_stands_for_itself(self, ssh, tmp_path):
        passwords = Passwords(become=SecretStr("open sesame"))
        with OpenSshTransport(
            ClusterDirectory(tmp_path), [host(), host("gpu02"), host("gpu03")], passwords
        ) as transport:
            transport.run("gpu01", ["true"], timeout_s=10)
            right = (ssh / "sudo").read_text()
            (ssh / "sudo").write_text(right.replace("open sesame", "another"))
            (ssh / "attempts").unlink()
            for _ in range(2):
                with pytest.raises(PasswordRefusedError, match="1 incorrect"):
                    transport.run("gpu02", ["true"], timeout_s=10)
            assert (ssh / "attempts").read_text() == "open sesame\n"
            (ssh / "sudo").write_text(right)
            assert transport.run("gpu03", ["echo", "x"], timeout_s=10).stdout == "x\n"

    def test_a_commands_own_exit_code_and_output_are_no_refusal(self, ssh, tmp_path):
        passwords = Passwords(become=SecretStr("open sesame"))
        with OpenSshTransport(ClusterDirectory(tmp_path), [host()], passwords) as transport:
            done = transport.run("gpu01", ["sh", "-c", "echo oh >&2; exit 1"], timeout_s=10)
        assert (done.exit_code, done.stdout, done.stderr) == (1, "", "oh\n")

    def test_without_a_password_there_is_one_command_a_host_and_no_trial(self, transport, ssh):
        transport.run("gpu01", ["true"], timeout_s=10)
        assert len([call for call in calls(ssh) if "-f" not in call and "-O" not in call]) == 1
        assert len((ssh / "sudo-calls").read_text().splitlines()) == 1


def test_the_ssh_password_is_handed_over_and_lies_nowhere(ssh, tmp_path):
    passwords = Passwords(ssh=SecretStr("hunter2"))
    with OpenSshTransport(ClusterDirectory(tmp_path), [host()], passwords) as transport:
        transport.run("gpu01", ["true"], timeout_s=10)
        program = transport._environment["SSH_ASKPASS"]
        of_ansible = tmp_path / "sftp"  # which starts an ssh of its own
        of_ansible.symlink_to("/bin/sh")
        above_it = ("-c", '"$@"; :', "above")
        said_by = [((), "hunter2\n"), ((), "hunter2\n"), ((str(of_ansible), *above_it), "hunter2\n")]
        # Where we are process 1, what lost its parent becomes our child, and leads no session.
        adopted = False
        for above, answer, ours in [
            *[(*each, True) for each in said_by], (("sh", *above_it), "", True), ((), "", adopted)
        ]:  # fmt: skip
            asking = [*above, "sh", "-c", '"$1"; :', "ssh", program]
            said = subprocess.run(
                asking,
                env=transport._environment,
                capture_output=True,
                start_new_session=ours,
                check=False,
            )
            assert said.stdout.decode() == answer
        assert not [
            path for path in transport._sockets.iterdir() if path.is_file() and "hunter2" in path.read_text()
        ]
        assert stat.S_IMODE(Path(program).stat().st_mode) == 0o700
        assert "hunter2" not in str(sorted(transport._environment.items()))
    assert "hunter2" not in (ssh / "calls").read_text()


@pytest.mark.parametrize(
    ("stderr", "words"),
    [
        ("ssh: connect to host 192.0.2.7 port 22: Connection refused", "refuses connections"),
        ("ssh: connect to host 192.0.2.7 port 22: No route to host", "no route"),
        ("ssh: Could not resolve hostname gpu9: Name or service not known", "gpu9 cannot be resolved"),
        ("@@@\n@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\n", "hosts replace gpu01"),
        ("No ED25519 host key is known for x\nHost key verification failed.", "hosts scan"),
        ("ssh: connect to host x port 22: Connection timed out", "does not answer"),
        ("kex_exchange_identification: read: odd", "SSH: kex_exchange_identification: read: odd"),
        ("", "the SSH connection was lost"),
    ],
)
def test_what_ssh_says_becomes_a_reason(stderr, words):
    assert words in reason(stderr, "gpu01")


def test_the_remote_line_bounds_the_command_there():
    line = remote_command(["nvidia-smi", "-q"], 30, with_password=False)
    assert "timeout -k 5 30 nvidia-smi -q" in line
    assert "LC_ALL=C" in line


def test_a_key_in_the_home_directory_of_nobody_is_for_ssh_to_refuse(ssh, tmp_path):
    node = host(ansible_ssh_private_key_file="~nobody-of-that-name/key")
    with OpenSshTransport(ClusterDirectory(tmp_path), [node]) as transport:
        transport.run("gpu01", ["true"], timeout_s=10)
    call = calls(ssh)[0]
    assert call[call.index("-i") + 1] == "~nobody-of-that-name/key"
