"""The log of an apply's module calls: it is complete, and holds no secret."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import inspect
import json
import re
import sys
import time
from types import SimpleNamespace

import pytest

from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.content import content_root
from clusterctl.errors import ClusterctlError
from clusterctl.rollout.drift.call_log import CallLog, read_call_log, remove_call_logs
from clusterctl.rollout.drift.calls import NotRepeatableError

from .drift_stage import asked_of, log_entry

CANARY = "correct-horse-canary"


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


def test_no_secret_is_written_down_of_a_module_that_broke(tmp_path):
    """It has not said which of its arguments it does not log."""
    asked = {"files": [{"path": "/x", "secret_base64": CANARY}]}
    path = tmp_path / "calls.jsonl"
    told_by = plugin_that_writes(path)
    result = ended("service_files", asked, {"msg": "MODULE FAILURE"}, name="broke")
    told_by.v2_runner_on_failed(result)
    told_by.v2_runner_on_ok(result)
    assert CANARY not in path.read_text()
    broke, mute = read_call_log(path).calls
    for one in (broke, mute):
        with pytest.raises(NotRepeatableError, match="broke: "):
            asked_of("gpu01", one)


@pytest.mark.parametrize("deep", [300, 5_000])
def test_a_host_that_logs_what_cannot_be_read_loses_its_own_call_alone(tmp_path, deep):
    path, logged = tmp_path / "calls.jsonl", []
    for _ in range(deep):
        logged = [logged]
    told_by = plugin_that_writes(path)
    with limited_depth(250):
        told_by.v2_runner_on_ok(ended("command", {"n": "x"}, {"invocation": {"module_args": {"n": logged}}}))
    told_by.v2_runner_on_ok(
        ended("command", {"n": "x"}, {"invocation": {"module_args": {"n": "x"}}}, host="gpu02")
    )
    told_by.v2_playbook_on_stats(SimpleNamespace(ok={"gpu01": 1, "gpu02": 1}))
    log = read_call_log(path)
    assert log.is_complete({"gpu01": 1, "gpu02": 1})
    odd, sound = log.calls
    # From Python 3.12 on its json in C has a limit of its own, which is far deeper.
    assert sys.version_info >= (3, 12) or "args" not in odd
    assert sound["args"] == {"n": "x"}
    with pytest.raises(NotRepeatableError):
        asked_of("gpu01", odd)


def test_an_answer_that_ansible_cannot_copy_is_a_call_that_cannot_be_repeated(tmp_path):
    class Unreadable(SimpleNamespace):
        @property
        def result(self):
            raise RecursionError

    path = tmp_path / "calls.jsonl"
    told_by = plugin_that_writes(path)
    good = ended("command", {"n": "x"}, {"invocation": {"module_args": {"n": "x"}}}, host="gpu02")
    told_by.v2_runner_on_ok(good)
    of_other = {**vars(ended("command", {"n": "x"}, {}))}
    of_other.pop("result")
    told_by.v2_runner_on_ok(Unreadable(**of_other))
    told_by.v2_playbook_on_stats(SimpleNamespace(ok={"gpu01": 1, "gpu02": 1}))
    log = read_call_log(path)
    assert log.is_complete({"gpu01": 1, "gpu02": 1})
    with pytest.raises(NotRepeatableError):
        asked_of("gpu01", log.calls[1])


def test_a_long_text_of_a_node_is_searched_in_time_in_proportion():
    """In Ansible's main process, for which all hosts wait; a node may have chosen an argument."""
    long = "a" * 100_000
    started = time.process_time()
    for text in (long, f"{long}://", "a://" * 25_000):
        assert callback().masked({"version": text}, {"version": text})["version"] == text
    assert time.process_time() - started < 1
    for text in (f"{long}://me:{CANARY}@proxy", f"{long}=http://{CANARY}@proxy/x", f"x svn+ssh://{CANARY}@a"):
        assert CANARY not in json.dumps(callback().masked({"version": text}, {"version": text}))


def test_a_call_with_long_arguments_is_written_without_them_and_hides_no_other(tmp_path, monkeypatch):
    path = tmp_path / "calls.jsonl"
    told_by = plugin_that_writes(path)
    monkeypatch.setitem(told_by._log.__globals__, "MAX_CALL_BYTES", 2000)
    monkeypatch.setitem(told_by._log.__globals__, "MAX_HOST_BYTES", 4900)

    def tell(host, text):
        asked = {"n": text}
        told_by.v2_runner_on_ok(ended("command", asked, {"invocation": {"module_args": asked}}, host=host))

    tell("gpu01", "x" * 3000)
    for _ in range(5):
        tell("gpu01", "x" * 1500)
    tell("gpu02", "x" * 1500)
    told_by.v2_playbook_on_stats(SimpleNamespace(ok={"gpu01": 6, "gpu02": 1}))
    log = read_call_log(path)
    assert log.is_complete({"gpu01": 6, "gpu02": 1})
    assert ["args" in call for call in log.calls] == [False, True, True, False, False, False, True]


@contextlib.contextmanager
def limited_depth(calls):
    """As deep within Ansible, where fewer calls are left."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + calls)
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


def plugin_that_writes(path):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CLUSTERCTL_CALLS", str(path))
        return callback().CallbackModule()


def ended(module, arguments, result, *, name="a task", host="gpu01"):
    """A task's end as Ansible tells it."""
    from types import SimpleNamespace as Bare

    task = Bare(_role=None, name=name, action=module, no_log=False, loop=None)
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
        (f"https://user:it's{CANARY}@mirror/", f"https://user:it's{CANARY}@mirror/"),
        ({"env": [f"a=https://{CANARY}@mirror/"]}, {"env": [f"a=https://{CANARY}@mirror/"]}),
    ],
    ids=[
        "dict",
        "list",
        "other-length",
        "list-as-text",
        "unknown",
        "dict-as-text",
        "url",
        "quote",
        "deep-url",
    ],
)
def test_a_secret_of_any_form_is_not_kept_and_cannot_be_asked(value, logged):
    kept = callback().masked({"it": value}, {"it": logged})
    assert CANARY not in json.dumps(kept)
    for module in ("debian_packages", "service_files"):
        with pytest.raises(NotRepeatableError, match="secret"):
            asked_of("gpu01", log_entry(module, args=kept))


@pytest.mark.parametrize("name", ["password", "secret_base64", "token"])
def test_no_host_decides_that_a_secret_is_none(name):
    kept = callback().masked({"it": [{name: CANARY}]}, {"it": [{name: "x"}]})
    assert CANARY not in json.dumps(kept)


def test_all_arguments_that_our_modules_do_not_log_have_such_a_name():
    secret = callback().SECRET_NAME
    modules = (content_root() / "plugins/modules").glob("*.py")
    named = {
        name for one in modules for name in re.findall(r'"(\w+)": \{[^{}]*"no_log": True', one.read_text())
    }
    assert named >= {"password", "secret_base64"}
    assert {name for name in named if not secret.search(name)} <= {"http_proxy", "https_proxy"}


@pytest.mark.parametrize("invocation", ["x", ["x"], 1, None, {"module_args": "x"}])
def test_an_invocation_of_any_form_leaves_the_log_complete(invocation, tmp_path):
    path = tmp_path / "calls.jsonl"
    told_by = plugin_that_writes(path)
    told_by.v2_runner_on_ok(ended("service_files", {"files": []}, {"invocation": invocation}))
    assert [call.get("args") for call in read_call_log(path).calls] == [None]


@pytest.mark.parametrize("value", ["https://mirror/a@b", "x@y", ["sha256:0", {"a": 1}], None, True, ""])
def test_what_is_no_secret_is_kept_as_it_is(value):
    assert callback().masked({"it": value}, {"it": value}) == {"it": value}


def test_a_file_with_a_password_in_a_url_cannot_be_asked_although_its_secrets_can():
    files = [{"path": "/x", "content": f"url = https://u:{CANARY}@mirror/\n"}]
    kept = callback().masked({"files": files}, {"files": files})
    with pytest.raises(NotRepeatableError, match="secret"):
        asked_of("gpu01", log_entry("service_files", args=kept))
    files = [{"path": "/x", "secret_base64": {"sha256": "0"}}]
    asked_of("gpu01", log_entry("service_files", args={"files": files}))


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
    assert not read_call_log(path).is_complete({"gpu01": 2}), "it did not come to its end"
    end()
    assert read_call_log(path).is_complete({"gpu01": 2})
    lines = path.read_text().splitlines()
    path.write_text("\n".join(lines[1:]) + "\n")
    assert not read_call_log(path).is_complete({"gpu01": 2})
    path.write_text("\n".join(lines)[:-3])
    assert read_call_log(path) == CallLog()
    assert not CallLog().is_complete({"gpu01": 2})


def test_a_task_whose_call_broke_the_callback_is_missed(tmp_path):
    path = tmp_path / "calls.jsonl"
    plugin, end = of_two_tasks(path)
    broken = ended("stat", {"path": "/"}, {})
    broken.task.action = None
    with pytest.raises(AttributeError):
        plugin.v2_runner_on_ok(broken)
    end()
    assert not read_call_log(path).is_complete({"gpu01": 2})


def test_what_preflight_asked_is_not_counted_with_the_site(tmp_path):
    from types import SimpleNamespace as Bare

    path = tmp_path / "calls.jsonl"
    preflight = plugin_that_writes(path)
    preflight.v2_playbook_on_start(Bare(_file_name="playbooks/preflight.yml"))
    preflight.v2_runner_on_ok(ended("node_preflight", {}, {}))
    preflight.v2_playbook_on_stats(Bare(ok={"gpu01": 1}))
    assert not read_call_log(path).is_complete({"gpu01": 1}), "the site wrote nothing"
    of_two_tasks(path)[1]()
    assert read_call_log(path).is_complete({"gpu01": 2})


@pytest.mark.parametrize("ending", [None, KeyboardInterrupt, ClusterctlError("x", code="engine.leased")])
def test_what_was_written_down_does_not_stay_however_it_ends(tmp_path, ending):
    directory = ClusterDirectory(tmp_path)
    directory.ensure_state()
    for run in ("this", "one-that-died"):
        (directory.runs / run).mkdir()
        (directory.runs / run / "calls.jsonl").write_text(CANARY)
    with contextlib.suppress(KeyboardInterrupt, ClusterctlError), remove_call_logs(directory):
        if ending:
            raise ending
    assert list(directory.runs.glob("*/*")) == []
