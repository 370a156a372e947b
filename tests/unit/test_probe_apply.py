"""One look before an apply: what is asked again, and which answer is no change. No host is reached."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import subprocess
import sys
import time
from base64 import b64encode
from dataclasses import replace
from pathlib import Path

import pytest

from clustercheck.transport import Completed
from clusterctl.cluster.access import Passwords
from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.cluster.inventory import Host, Inventory
from clusterctl.cluster.ssh import PasswordRefusedError
from clusterctl.content import content_root
from clusterctl.errors import ClusterctlError
from clusterctl.rollout.probe import ask, code, records
from clusterctl.rollout.probe.calls import HERE, Call, CannotAskError, of_host
from clusterctl.rollout.probe.decided import inputs, require_clear, with_secrets
from clusterctl.rollout.probe.judge import decisive, wanting
from clusterctl.rollout.probe.look import Looks, calls_put_away, differences, judged
from clusterctl.rollout.probe.records import Record
from clusterctl.rollout.probe.steady import is_steady
from clusterctl.rollout.probe.written import Written, read

CANARY = "correct-horse-canary"
ENCODED = b64encode(CANARY.encode()).decode()


def told(module, *, host="gpu01", **fields):
    asked = {"host": host, "at": "", "task": f"r: {module}", "module": module, "looks": False, "job": False,
             "failed": False, "hidden": False, "args": {}, "file": {}}  # fmt: skip
    return {**asked, **fields}


PREFLIGHT = told("node_preflight", args={"controller_time": 1.0})


def asked_of(host, *more):
    return of_host(host, [{**PREFLIGHT, "host": host}, *more])


# What is written down


def callback():
    spec = importlib.util.spec_from_file_location(
        "calls", content_root() / "plugins/callback/clusterctl_calls.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_what_a_module_does_not_log_is_written_as_its_digest_alone():
    arguments = {"files": [{"path": "/etc/x", "secret_base64": CANARY}], "units": ["a.service"]}
    logged = {
        "files": [{"path": "/etc/x", "secret_base64": "VALUE_SPECIFIED_IN_NO_LOG_PARAMETER"}],
        "units": ["a.service"],
    }
    kept = callback().masked(arguments, logged)
    assert CANARY not in json.dumps(kept)
    assert kept["files"][0]["secret_base64"] == {"sha256": hashlib.sha256(CANARY.encode()).hexdigest()}
    assert kept["units"] == ["a.service"]


@pytest.mark.parametrize(
    ("proxy", "kept"), [("http://proxy:3128", True), (f"http://user:{CANARY}@proxy:3128", False)]
)
def test_a_proxy_is_kept_unless_a_password_is_in_it(proxy, kept):
    found = callback().masked({"http_proxy": proxy}, {"http_proxy": "VALUE_SPECIFIED_IN_NO_LOG_PARAMETER"})
    assert (found["http_proxy"] == proxy) is kept
    assert CANARY not in json.dumps(found)


def test_the_playbooks_own_calls_are_written_down(tmp_path):
    """Real Ansible, on this machine: what it asked can be asked again, and no secret is in the file."""
    book = tmp_path / "book.yml"
    book.write_text(
        "- hosts: all\n  gather_facts: false\n  tasks:\n"
        f"    - service_files: {{files: [{{path: {tmp_path}/s, secret_base64: {ENCODED}, mode: '0600'}}]}}\n"
        "    - ansible.builtin.command: 'true'\n      changed_when: false\n"
        f"    - ansible.builtin.file: {{path: {tmp_path}/d, state: directory, mode: '0700'}}\n"
        "    - ansible.builtin.debug: {msg: hello}\n"
        f"    - ansible.builtin.set_fact: {{password: {CANARY}}}\n"
        "    - registry_image: {source: x/y, destination: '127.0.0.1:9/y', digest: 'sha256:0',\n"
        f"        http_proxy: 'http://user:{CANARY}@127.0.0.1:9'}}\n"
        f"      async: 30\n      poll: 0\n      vars: {{ansible_async_dir: {tmp_path}/jobs}}\n"
    )
    here = f"{{ansible_connection: local, ansible_python_interpreter: {sys.executable}}}"
    (tmp_path / "hosts.yml").write_text(f"all: {{hosts: {{gpu01: {here}}}}}\n")
    from clusterctl.engine.environment import ansible_environment

    calls = tmp_path / "calls.jsonl"
    done = subprocess.run(
        [sys.executable, "-m", "ansible", "playbook", "-i", str(tmp_path / "hosts.yml"), str(book)],
        cwd=content_root(),
        env=ansible_environment(content_root(), calls=calls),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert calls.stat().st_mode & 0o777 == 0o600
    assert CANARY not in calls.read_text()
    assert ENCODED not in calls.read_text()
    found = of_host("gpu01", [PREFLIGHT, *read(calls).calls])[1:]
    assert [call.module for call in found] == ["service_files", "command", "file"]
    assert [call.check for call in found] == [True, False, True]
    assert isinstance(found[0].args["files"][0]["secret_base64"], dict)
    assert read(calls).is_whole({"gpu01": 6}), "as Ansible itself counts them"
    assert not read(calls).is_whole({"gpu01": 7})


def test_no_secret_is_written_down_of_a_module_that_broke(tmp_path):
    """It has not said which of its arguments it does not log."""
    asked = {"files": [{"path": "/x", "secret_base64": CANARY}]}
    path = tmp_path / "calls.jsonl"
    told_by = plugin_that_writes(path)
    result = ended("service_files", asked, {"msg": "MODULE FAILURE"}, name="broke")
    told_by.v2_runner_on_failed(result)
    told_by.v2_runner_on_ok(result)
    assert CANARY not in path.read_text()
    broke, mute = read(path).calls
    for one in (broke, mute):
        with pytest.raises(CannotAskError, match="broke: "):
            asked_of("gpu01", one)


def plugin_that_writes(path):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CLUSTERCTL_CALLS", str(path))
        return callback().CallbackModule()


def ended(module, arguments, result, *, name="a task", host="gpu01"):
    """A task's end as Ansible tells it."""
    from types import SimpleNamespace as Bare

    task = Bare(_role=None, name=name, action=module, changed_when=[], no_log=False, loop=None)
    named = Bare(get_name=lambda: host)
    return Bare(host=named, task=task, task_fields={"args": arguments}, result=result)


HIDDEN = "VALUE_SPECIFIED_IN_NO_LOG_PARAMETER"


@pytest.mark.parametrize(
    ("value", "logged"),
    [
        ({"user": "me", "password": CANARY}, HIDDEN),
        ([CANARY, "x"], HIDDEN),
        ([CANARY, "x"], [HIDDEN]),
        (f"{CANARY},x", [HIDDEN, "x"]),
        ({"password": CANARY}, {}),
        ({"password": CANARY}, f"{{'password': '{HIDDEN}'}}"),
        (f"https://user:{CANARY}@mirror/", f"https://user:{CANARY}@mirror/"),
        ({"env": [f"a=https://{CANARY}@mirror/"]}, {"env": [f"a=https://{CANARY}@mirror/"]}),
    ],
    ids=["dict", "list", "other-length", "list-as-text", "unknown", "dict-as-text", "url", "deep-url"],
)
def test_a_secret_of_any_form_is_not_kept_and_cannot_be_asked(value, logged):
    kept = callback().masked({"it": value}, {"it": logged})
    assert CANARY not in json.dumps(kept)
    for module in ("debian_packages", "service_files"):
        with pytest.raises(CannotAskError, match="secret"):
            asked_of("gpu01", told(module, args=kept))


@pytest.mark.parametrize("value", ["https://mirror/a@b", "x@y", ["sha256:0", {"a": 1}], None, True, ""])
def test_what_is_no_secret_is_kept_as_it_is(value):
    assert callback().masked({"it": value}, {"it": value}) == {"it": value}


def test_a_file_with_a_password_in_a_url_cannot_be_asked_although_its_secrets_can():
    files = [{"path": "/x", "content": f"url = https://u:{CANARY}@mirror/\n"}]
    kept = callback().masked({"files": files}, {"files": files})
    with pytest.raises(CannotAskError, match="secret"):
        asked_of("gpu01", told("service_files", args=kept))
    files = [{"path": "/x", "secret_base64": {"sha256": "0"}}]
    asked_of("gpu01", told("service_files", args={"files": files}))


def of_two_tasks(path):
    from types import SimpleNamespace as Bare

    plugin = plugin_that_writes(path)
    plugin.v2_playbook_on_start(Bare(_file_name="/x/playbooks/site.yml"))
    for name in ("one", "two"):
        plugin.v2_runner_on_ok(ended("stat", {"path": "/"}, {}, name=name))
    return plugin, lambda: plugin.v2_playbook_on_stats(Bare(ok={"gpu01": 2}))


def test_a_call_that_was_not_written_down_is_missed(tmp_path, monkeypatch):
    """Ansible only warns where a callback breaks; a call that nobody asks again is a drift nobody sees."""
    path = tmp_path / "calls.jsonl"
    _, end = of_two_tasks(path)
    assert not read(path).is_whole({"gpu01": 2}), "it did not come to its end"
    end()
    assert read(path).is_whole({"gpu01": 2})
    lines = path.read_text().splitlines()
    path.write_text("\n".join(lines[1:]) + "\n")
    assert not read(path).is_whole({"gpu01": 2})
    path.write_text("\n".join(lines)[:-3])
    assert read(path) == Written()
    assert not Written().is_whole({"gpu01": 2})


def test_a_task_whose_call_broke_the_callback_is_missed(tmp_path):
    path = tmp_path / "calls.jsonl"
    plugin, end = of_two_tasks(path)
    broken = ended("stat", {"path": "/"}, {})
    broken.task.changed_when = None
    with pytest.raises(TypeError):
        plugin.v2_runner_on_ok(broken)
    end()
    assert not read(path).is_whole({"gpu01": 2})


def test_what_preflight_asked_is_not_counted_with_the_site(tmp_path):
    from types import SimpleNamespace as Bare

    path = tmp_path / "calls.jsonl"
    preflight = plugin_that_writes(path)
    preflight.v2_playbook_on_start(Bare(_file_name="playbooks/preflight.yml"))
    preflight.v2_runner_on_ok(ended("node_preflight", {}, {}))
    preflight.v2_playbook_on_stats(Bare(ok={"gpu01": 1}))
    assert not read(path).is_whole({"gpu01": 1}), "the site wrote nothing"
    of_two_tasks(path)[1]()
    assert read(path).is_whole({"gpu01": 2})


@pytest.mark.parametrize("ending", [None, KeyboardInterrupt, ClusterctlError("x", code="engine.leased")])
def test_what_was_written_down_does_not_stay_however_it_ends(tmp_path, ending):
    directory = ClusterDirectory(tmp_path)
    directory.ensure_state()
    for run in ("this", "one-that-died"):
        (directory.runs / run).mkdir()
        (directory.runs / run / "calls.jsonl").write_text(CANARY)
    with contextlib.suppress(KeyboardInterrupt, ClusterctlError), calls_put_away(directory):
        if ending:
            raise ending
    assert list(directory.runs.glob("*/*")) == []


# What can be asked again


def test_what_decides_on_the_controller_alone_and_what_follows_is_not_asked():
    modules = ("assert", "include_tasks", "debug", "async_status", "reboot")
    job = told("container_image", job=True)
    assert [c.module for c in asked_of("gpu01", *map(told, modules), job)] == ["node_preflight"]


def test_the_controllers_own_calls_are_every_hosts():
    local = told("cluster_certificate", host="gpu02", at=HERE)
    other = told("debian_packages", host="gpu02")
    assert [(c.at, c.module) for c in asked_of("gpu01", local, other)] == [
        ("", "node_preflight"),
        (HERE, "cluster_certificate"),
    ]


def test_equal_calls_are_asked_once_and_counted():
    calls = asked_of("gpu01", told("container_engine_facts"), told("container_engine_facts"))
    assert [(c.module, c.times) for c in calls] == [("node_preflight", 1), ("container_engine_facts", 2)]


@pytest.mark.parametrize(
    "call",
    [
        told("debian_packages", hidden=True),
        told("debian_packages", failed=True),
        told("apt"),
        told("command"),
        told("uri", args={"method": "POST"}),
        told("template"),
        told("file", at="gpu02"),
        told("apt_source", args={"http_proxy": {"sha256": "0" * 64}}),
    ],
    ids=["no_log", "rescued", "unknown", "changes", "post", "no-content", "delegated", "secret"],
)
def test_what_is_not_clear_cannot_be_asked(call):
    with pytest.raises(CannotAskError, match="r: "):
        asked_of("gpu01", call)


def test_a_host_of_which_nothing_was_written_down_is_not_remembered():
    with pytest.raises(CannotAskError):
        of_host("gpu01", [])


def test_what_a_change_has_just_done_is_not_asked_again():
    (_, call) = asked_of(
        "gpu01", told("nvidia_driver_activate", args={"changed_packages": ["x"], "version": "1"})
    )
    assert call.args == {"changed_packages": [], "version": "1"}


def test_every_fact_that_a_condition_of_a_role_asks_is_looked_at(repository):
    """Roles may ask the system what /etc/os-release and uname say: replay.py compares those two."""
    import re

    asked = set()
    for path in (repository / "roles").rglob("*.yml"):
        asked |= set(re.findall(r"ansible_facts\[.(\w+).\]", path.read_text(encoding="utf-8")))
    assert asked
    assert {name for name in asked if not name.startswith("distribution")} <= {"architecture"}


# Which answer means that nothing is to be done


def call(module, kind="module", at=""):
    return Call(at, f"role: {module}", kind, module, {})


@pytest.mark.parametrize(
    ("module", "result", "quiet"),
    [
        ("file", {"changed": False}, True),
        ("file", {"changed": True}, False),
        ("file", {"failed": True, "msg": "no"}, False),
        ("container_image", {"changed": False, "wanted": True}, False),
        ("nvidia_driver_plan", {"changed": False, "plan": {"transaction": False, "activation": False}}, True),
        ("nvidia_driver_plan", {"changed": False, "plan": {"transaction": True}}, False),
        ("nvidia_driver_plan", {"changed": False, "plan": {"activation": True}}, False),
        ("nvidia_driver_activate", {"changed": False, "reboot_required": "new kernel"}, False),
        ("nvidia_driver_activate", {"changed": False, "left_alone": True}, False),
        ("registry_trust", {"changed": False, "left_alone": ["/etc/containerd/certs.d/x/hosts.toml"]}, True),
        ("docker_daemon_config", {"changed": False, "clusterctl": {"busy": "a container"}}, False),
        ("command", {"changed": True, "failed": True, "rc": 3}, True),
        ("command", {"failed": True, "msg": "it did not answer in time"}, False),
        ("node_preflight", {"changed": False, "clusterctl": {"findings": [{"severity": "warning"}]}}, True),
        ("node_preflight", {"clusterctl": {"findings": [{"severity": "error", "subject": "dns"}]}}, False),
        ("node_preflight", {"clusterctl": {"findings": [{"severity": "grave"}]}}, False),
        ("node_preflight", {"clusterctl": {"findings": [], "busy": "a job"}}, False),
        ("node_preflight", {"clusterctl": {"findings": [], "facts": {"lease": {"run": "x"}}}}, False),
        ("node_preflight", {"changed": False}, False),
    ],
)
def test_an_answer_is_quiet_or_says_why_not(module, result, quiet):
    assert (wanting(call(module), result) == "") is quiet


def test_an_answer_that_later_tasks_decide_by_must_be_the_same():
    before = {"changed": False, "engine": {"cdi": "never", "containers_running": 0}}
    same = {"changed": False, "engine": {"cdi": "never", "containers_running": 3}}
    other = {"changed": False, "engine": {"cdi": "option", "containers_running": 0}}
    facts = call("container_engine_facts")
    assert decisive(facts, before) == decisive(facts, same)
    assert decisive(facts, before) != decisive(facts, other)
    stat = call("stat")
    assert decisive(stat, {"stat": {"exists": True, "atime": 1}}) == decisive(
        stat, {"stat": {"exists": True}}
    )
    assert decisive(stat, {"stat": {"exists": True}}) != decisive(stat, {"stat": {"exists": False}})
    assert decisive(call("command"), {"rc": 3, "delta": 1}) != decisive(
        call("command"), {"rc": 0, "delta": 1}
    )


def remembered(host, *calls, result=None):
    answers = {f"{c.at}/{c.identity}": decisive(c, result or {"changed": False}) for c in calls}
    return Record(host, "run", "digest", calls, answers)


def test_only_a_host_of_which_every_answer_is_as_it_was_is_done():
    own, local = call("debian_packages"), call("cluster_certificate", at=HERE)
    record = remembered("gpu01", own, local)
    good = {own.identity: {"changed": False}}
    here = {local.identity: {"changed": False}}
    known = {"gpu01": record, "gpu02": replace(record, host="gpu02"), "gpu03": replace(record, host="gpu03")}
    drifted = {own.identity: {"changed": True}}
    look = judged(known, here, {"gpu01": good, "gpu02": drifted, "gpu03": "its SSH port refuses connections"})
    assert list(look.quiet) == ["gpu01"]
    assert look.quiet["gpu01"].ok == 2
    assert look.differing["gpu02"] == ("role: debian_packages: it would change something",)
    assert look.differing["gpu03"] == ("its SSH port refuses connections",)
    assert look.rest(["gpu03", "gpu01", "gpu02"]) == ("gpu03", "gpu02")


def test_a_change_on_the_controller_is_every_hosts():
    own, local = call("debian_packages"), call("cluster_certificate", at=HERE)
    known = {name: replace(remembered(name, own, local), host=name) for name in ("gpu01", "gpu02")}
    answers = {name: {own.identity: {"changed": False}} for name in known}
    assert judged(known, {local.identity: {"changed": True}}, answers).quiet == {}


def test_an_answer_that_did_not_come_is_no_good_answer():
    record = remembered("gpu01", call("debian_packages"))
    assert differences(record, {"": {}, HERE: {}}) == ("role: debian_packages: no answer",)


# By what it was decided


@pytest.fixture
def inventory(tmp_path):
    (tmp_path / "hosts.yml").write_text("all: {}\n")
    directory = ClusterDirectory(tmp_path)
    directory.ensure_state()
    hosts = tuple(
        Host(name, name, 22, "ops", ("gpu_nodes",), {"nvidia_driver_branch": "580"})
        for name in ("gpu01", "gpu02")
    )
    return Inventory(directory, hosts)


def test_a_setting_of_any_host_a_flag_a_lock_and_a_secret_decide(inventory):
    first = inputs(inventory, {})
    assert first == inputs(inventory, {})
    other = replace(inventory.hosts[1], variables={"nvidia_driver_branch": "570"})
    assert inputs(replace(inventory, hosts=(inventory.hosts[0], other)), {}) != first
    assert inputs(replace(inventory, hosts=inventory.hosts[:1]), {}) != first
    assert inputs(inventory, {"nvidia_driver_reboot": True}) != first
    (inventory.directory.root / "clusterctl.lock").write_text("driver: 580\n")
    assert inputs(inventory, {}) != first
    before = with_secrets(first, inventory.directory)
    (inventory.directory.secrets / "registry-pull.password").write_text("x")
    assert with_secrets(first, inventory.directory) != before


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("site_http_proxy", "{{ lookup('env', 'http_proxy') }}"),
        ("cluster_name", ["{{ now() }}"]),
        ("site_no_proxy", "{{ '/etc/site' is exists }}"),
        ("site_no_proxy", "{{ '%Y' | strftime }}"),
        ("ansible_connection", "local"),
        ("ansible_become_method", "su"),
        ("ansible_become_password", "x"),
        ("registry_controller_dir", "/srv/keys"),
    ],
)
def test_a_host_whose_settings_no_digest_covers_is_not_remembered(inventory, name, value):
    require_clear(inventory.hosts[0], inventory)
    with pytest.raises(CannotAskError, match=name):
        require_clear(replace(inventory.hosts[0], variables={name: value}), inventory)


SETTINGS = frozenset(
    {"site_no_proxy", "site_http_proxy", "users", "ansible_host", "ansible_play_hosts", "vars"}
)


@pytest.mark.parametrize(
    "value",
    [
        "{{ '$SITE_PROXY' | expandvars }}",
        "{{ '~/x' | expanduser }}",
        "{% include '/etc/site' %}",
        "{% import '/etc/site' as site %}{{ site.x }}",
        "{% extends '/etc/site' %}",
        "{% macro m() %}x{% endmacro %}{{ m() }}",
        "{{ ansible_play_hosts | join(',') }}",
        "{{ ansible_limit }}",
        "{{ ansible_check_mode }}",
        "{{ ansible_facts.hostname }}",
        "{{ vars['ansible_facts'] }}",
        "{{ hostvars['gpu01'].ansible_facts.hostname }}",
        "{{ hostvars['gpu01']['ansible_' ~ 'limit'] }}",
        "{{ hostvars | dict2items }}",
        "{% set all = hostvars %}{{ all['gpu01'].ansible_limit }}",
        "{% for ansible_limit in [] %}{% endfor %}{{ ansible_limit }}",
        "{{ lookup('env', 'X') }}",
        "{{ ansible.builtin.lookup('env', 'X') }}",
        "{{ query('file', 'X') }}",
        "{{ now() }}",
        "{{ [1, 2] | random }}",
        "{{ ['x'] | map('expandvars') | list }}",
        "{{ ['x'] | map('ansible.builtin.realpath') | list }}",
        "{{ ['/x'] | select('exists') | list }}",
        "{{ [{'a': '/x'}] | selectattr('a', 'file') | list }}",
        "{{ groups['all'] | map('extract', hostvars, 'ansible_limit') | list }}",
        "{{ ['x'] | map(site_no_proxy) | list }}",
        "{{ ['x'] | map(*['expandvars']) | list }}",
        "{{ '/x' is ansible.builtin.exists }}",
        "{{ ''.__class__ }}",
        "{{ ''['__class__'] }}",
        "{{ a_default_of_a_role }}",
        "{{ unfinished",
        "#jinja2: variable_start_string:'[%'\n[% now() %]{{ 1 }}",
        {"__ansible_vault": "$ANSIBLE_VAULT;1.1;AES256\n00"},
        ["x", {"a": "{{ now() }}"}],
    ],
)
def test_a_setting_that_is_not_known_to_be_steady_is_not(value):
    assert not is_steady(value, SETTINGS)


@pytest.mark.parametrize(
    "value",
    [
        "plain", 3, None, True, "a % b { c }",
        {"__ansible_unsafe": "{{ now() }}"},
        "-o UserKnownHostsFile={{ inventory_dir }}/.clusterctl/known_hosts",
        "{{ site_no_proxy }},{{ inventory_hostname }}",
        "{{ groups['all'] | map('extract', hostvars, 'ansible_host') | join(',') }}",
        "{{ inventory_hostname | extract(hostvars, 'site_no_proxy') }}",
        "{{ groups['gpu_nodes'] | difference([inventory_hostname]) | ansible.builtin.unique | sort }}",
        "{% for host in groups.all %}{{ host }}={{ hostvars[host]['ansible_host'] }}"
        "{% if not loop.last %},{% endif %}{% endfor %}",
        "{{ hostvars['gpu01'].users[0].name.upper() }}",
        "{{ users | selectattr('name', 'match', 'a.*') | map(attribute='name') | list }}",
        "{{ 'a' if 'gpu_nodes' in group_names else 'b' }}",
        "{{ site_http_proxy | default('') | regex_replace('x', 'y') }}",
        "{% set parts = site_no_proxy.split(',') %}{{ parts[0] ~ parts[1:] | length }}",
        [{"a": "{{ site_no_proxy is defined and site_no_proxy is not none }}"}],
    ],
)  # fmt: skip
def test_a_setting_that_speaks_of_other_settings_alone_is_steady(value):
    assert is_steady(value, SETTINGS)


def test_settings_that_name_their_own_directory_decide_by_where_it_is(inventory, tmp_path):
    elsewhere = replace(inventory, directory=ClusterDirectory(tmp_path / "elsewhere"))
    assert inputs(elsewhere, {}) != inputs(inventory, {})


def test_a_setting_of_another_host_that_no_digest_covers_counts_too(inventory):
    """The registry's address in /etc/hosts of a node is a setting of the registry's host."""
    registry = Host(
        "reg", "reg", 22, "ops", ("registry",), {"ansible_host": "{{ lookup('env', 'REGISTRY') }}"}
    )
    whole = replace(inventory, hosts=(*inventory.hosts, registry))
    with pytest.raises(CannotAskError, match="ansible_host of reg may be another"):
        require_clear(inventory.hosts[0], whole)


@pytest.mark.parametrize("how", ["other", "broken"])
def test_settings_that_are_edited_while_apply_is_at_work_are_not_remembered(inventory, tmp_path, how):
    """Some waves went by the old, some by the new: put back, they would pass for what was applied."""
    from types import SimpleNamespace as Bare

    directory, calls = inventory.directory, tmp_path / "calls.jsonl"
    calls.touch()
    listing = {"gpu_nodes": {"hosts": ["gpu01"]}, "_meta": {"hostvars": {"gpu01": {"a": how}}}}
    session = Bare(directory=directory, extra_vars={}, run=Bare(id="r", path=lambda _name: calls), calls=None)
    looks = Looks(
        session, Bare(directory=directory, inventory=inventory), None, inputs(inventory, {}), True, False
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Looks, "told", Bare(calls=calls))
        patch.setattr(Written, "is_whole", lambda *_: True)
        patch.setattr(
            "clusterctl.cluster.inventory._listing", lambda _d: listing if how == "other" else _unreadable()
        )
        said = looks.settle({"gpu01": 1})
    assert said == {"gpu01": "the settings were changed while it was at work"}
    assert records.load(directory, "gpu01") is None


def test_a_disk_that_is_full_is_said_of_the_host_that_cannot_be_remembered(inventory, monkeypatch):
    from types import SimpleNamespace as Bare

    def full(_directory, record):
        if record.host == "gpu01":
            raise ClusterctlError("it cannot be written: No space left on device", code="cluster.x")
        kept.append(record.host)

    kept = []
    monkeypatch.setattr(records, "save", full)
    asked = call("debian_packages")
    answers = {name: {asked.identity: {"changed": False}} for name in ("gpu01", "gpu02")}
    monkeypatch.setattr(Looks, "_answers", lambda *_: ({}, answers))
    looks = Looks(
        Bare(run=Bare(id="r")), Bare(directory=inventory.directory), Passwords(), "digest", True, False
    )
    said = looks._look_again(dict.fromkeys(answers, (asked,)))
    assert said == {"gpu01": "it cannot be written: No space left on device"}
    assert kept == ["gpu02"]


def _unreadable():
    raise ClusterctlError("no", code="inventory.unreadable")


def test_a_password_that_one_host_refuses_ends_the_look(inventory, monkeypatch):
    """Asked on, every host would count a wrong attempt; the whole road would be one more on each."""
    asked = []

    class Transport:
        def __init__(self, *_):
            pass

        def __enter__(self):
            return self

        def __exit__(self, *_):
            return None

        def run(self, node, *_args, **_options):
            asked.append(node)
            raise PasswordRefusedError(node, "sudo refuses us: 1 incorrect password attempt")

    from types import SimpleNamespace as Bare

    monkeypatch.setattr("clusterctl.rollout.probe.look.OpenSshTransport", Transport)
    monkeypatch.setattr(ask, "AT_ONCE", 2)
    hosts = tuple(replace(inventory.hosts[0], name=f"gpu{number:02d}") for number in range(9))
    names = tuple(host.name for host in hosts)
    digest = inputs(inventory, {})
    for name in names:
        record = remembered(name, call("debian_packages"))
        records.save(inventory.directory, replace(record, inputs=with_secrets(digest, inventory.directory)))
    chosen = Bare(directory=inventory.directory, inventory=inventory, names=names, hosts=hosts)
    session = Bare(directory=inventory.directory, extra_vars={})
    looks = Looks(session, chosen, Passwords(), digest, True, False)
    with pytest.raises(ClusterctlError, match="sudo refuses us") as caught:
        looks.first()
    assert caught.value.code == "access.sudo-password"
    assert len(asked) <= 3


def test_a_controller_that_hangs_is_a_reason_and_no_error(tmp_path, monkeypatch):
    monkeypatch.setattr(ask, "HOST_LIMIT_S", 0.05)
    monkeypatch.setattr(ask, "_command", lambda _python, _place: ["sleep", "5"])
    said = ask.ask_here([call("cluster_certificate", at=HERE)], ClusterDirectory(tmp_path))
    assert isinstance(said, str)
    assert "no answer" in said


def test_what_is_remembered_is_the_operators_alone_and_is_forgotten_whole(inventory):
    directory = inventory.directory
    record = remembered("gpu01", call("debian_packages"))
    records.save(directory, record)
    assert records.load(directory, "gpu01") == record
    (path,) = (directory.state / "probe").glob("*.json")
    assert path.stat().st_mode & 0o777 == 0o600
    path.write_text('{"host": "gpu01"')
    assert records.load(directory, "gpu01") is None
    records.forget(directory, "gpu01")
    assert records.load(directory, "gpu01") is None


# The look itself, on this machine, with the code that nodes get


def look_here(tmp_path, *calls, limit_s=None, monkeypatch=None):
    if monkeypatch:
        monkeypatch.setattr(ask, "CALL_LIMIT_S", limit_s)
    answers = ask.ask_here([replace(c, at=HERE) for c in calls], ClusterDirectory(tmp_path))
    assert not isinstance(answers, str), answers
    return [answers[c.identity] for c in calls]


def module_call(module, *, check=True, **arguments):
    return Call("", f"role: {module}", "module", module, arguments, check=check)


def test_a_look_leaves_no_temporary_directory_behind(tmp_path, monkeypatch):
    room = tmp_path / "tmp"
    room.mkdir()
    monkeypatch.setenv("TMPDIR", str(room))
    (answer,) = look_here(tmp_path, module_call("uri", check=False, url="http://127.0.0.1:9/", timeout=5))
    assert answer["failed"]
    assert list(room.iterdir()) == []


def test_modules_answer_in_check_mode_and_change_nothing(tmp_path):
    (tmp_path / "there").mkdir(mode=0o700)
    calls = [
        module_call("file", path=str(tmp_path / "there"), state="directory", mode="0700"),
        module_call("file", path=str(tmp_path / "gone"), state="directory"),
        module_call("lineinfile", path="/etc/hosts", line="192.0.2.1 nowhere"),
        module_call("stat", path=str(tmp_path / "gone")),
        module_call("command", check=False, _raw_params="sh -c 'exit 3'", _uses_shell=False),
        module_call("debian_packages", packages=["no-such-package-anywhere"]),
    ]
    there, gone, line, stat, command, packages = look_here(tmp_path, *calls)
    assert [there["changed"], gone["changed"], line["changed"]] == [False, True, True]
    assert not (tmp_path / "gone").exists()
    assert "nowhere" not in Path("/etc/hosts").read_text()
    assert stat["stat"]["exists"] is False
    assert command["rc"] == 3
    assert packages.get("changed") or packages.get("failed")


@pytest.mark.parametrize("end", ["", "\n"])
def test_a_secret_is_compared_by_its_digest_alone(tmp_path, end):
    path = tmp_path / "secret"
    path.touch(mode=0o600)
    file = {
        "path": str(path),
        "secret_base64": {"sha256": hashlib.sha256(b64encode((CANARY + end).encode())).hexdigest()},
        "mode": "0600",
    }
    asked = module_call("service_files", files=[file], units=[])
    path.write_text(f"{CANARY}\n")
    assert look_here(tmp_path, asked)[0]["changed"] is False
    path.write_text(f"{CANARY}!\n")
    assert look_here(tmp_path, asked)[0]["changed"] is True
    path.unlink()
    assert look_here(tmp_path, asked)[0]["changed"] is True


def test_a_rendered_file_is_compared_by_content_mode_and_owner(tmp_path):
    path = tmp_path / "conf"
    path.write_text("a = 1\n")
    path.chmod(0o644)
    checksum = hashlib.sha1(b"a = 1\n", usedforsecurity=False).hexdigest()
    left = {
        "dest": str(path),
        "checksum": checksum,
        "mode": "0644",
        "owner": path.owner(),
        "group": path.group(),
    }
    asked = Call("", "role: template", "file", "template", left)
    assert look_here(tmp_path, asked) == [{"changed": False, "differs": []}]
    path.chmod(0o600)
    assert look_here(tmp_path, asked) == [{"changed": True, "differs": ["mode"]}]
    path.chmod(0o644)
    path.write_text("a = 2\n")
    assert look_here(tmp_path, asked) == [{"changed": True, "differs": ["checksum"]}]
    path.unlink()
    path.symlink_to("/etc/hostname")
    assert look_here(tmp_path, asked)[0]["changed"] is True


def test_a_call_that_hangs_is_ended_with_all_that_it_began_and_the_others_answer(tmp_path, monkeypatch):
    mark = tmp_path / "pid"
    hangs = module_call(
        "command", check=False, _raw_params=f"sh -c 'echo $$ > {mark}; sleep 600'", _uses_shell=False
    )
    answers = look_here(tmp_path, hangs, module_call("stat", path="/"), limit_s=3, monkeypatch=monkeypatch)
    assert answers[0] == {"failed": True, "msg": "it did not answer in time"}
    assert answers[1]["stat"]["exists"] is True
    deadline = time.monotonic() + 10
    while Path(f"/proc/{int(mark.read_text())}").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not Path(f"/proc/{int(mark.read_text())}").exists()


def test_the_code_on_a_node_must_be_its_users_alone(tmp_path):
    directory = ClusterDirectory(tmp_path)
    look = module_call("stat", path="/")
    look_here(tmp_path, look)
    place = directory.state / "probe" / "code"
    assert place.stat().st_mode & 0o077 == 0
    (place / code.digest()).chmod(0o777)
    answers = ask.ask_here([replace(look, at=HERE)], directory)
    assert isinstance(answers, str)
    assert "not ours alone" in answers


def test_code_of_another_version_stays_while_somebody_may_use_it(tmp_path, monkeypatch):
    """Two controllers of different versions would put each other's code away at every look."""
    look = module_call("stat", path="/")
    look_here(tmp_path, look)
    first = code.digest()
    room = tmp_path / ".clusterctl/probe/code"
    monkeypatch.setattr(code, "digest", lambda: "1" * 32)
    look_here(tmp_path, look)
    assert {path.name for path in room.iterdir()} == {first, "1" * 32}
    long_ago = time.time() - 60 * 86400
    os.utime(room / first, (long_ago, long_ago))
    monkeypatch.setattr(code, "digest", lambda: "2" * 32)
    look_here(tmp_path, look)
    assert {path.name for path in room.iterdir()} == {"1" * 32, "2" * 32}


def test_the_first_look_puts_the_code_where_it_is_missing(inventory, monkeypatch):
    """It is there in every other case, and then nothing more is sent."""
    from types import SimpleNamespace as Bare

    sent = []

    class Transport:
        def __init__(self, *_):
            pass

        def __enter__(self):
            return self

        def __exit__(self, *_):
            return None

        def run(self, node, argv, *, stdin, timeout_s):
            sent.append((node, bool(stdin.splitlines()[1])))
            order = json.loads(stdin.splitlines()[0])
            answers = {one["id"]: {"changed": False} for one in order["calls"]}
            missing = node == "gpu02" and not stdin.splitlines()[1]
            return Completed(0, json.dumps({"missing": True} if missing else {"answers": answers}), "")

    monkeypatch.setattr("clusterctl.rollout.probe.look.OpenSshTransport", Transport)
    monkeypatch.setattr("clusterctl.rollout.probe.look.note", lambda *_: None)
    digest = inputs(inventory, {})
    for name in ("gpu01", "gpu02"):
        record = remembered(name, call("debian_packages"))
        records.save(inventory.directory, replace(record, inputs=with_secrets(digest, inventory.directory)))
    chosen = Bare(
        directory=inventory.directory, inventory=inventory, names=("gpu01", "gpu02"), hosts=inventory.hosts
    )
    session = Bare(directory=inventory.directory, extra_vars={})
    look = Looks(session, chosen, Passwords(), digest, True, False).first()
    assert set(look.quiet) == {"gpu01", "gpu02"}
    assert sorted(sent) == [("gpu01", False), ("gpu02", False), ("gpu02", True)]
