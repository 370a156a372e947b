"""Settings are checked as data: each wrong file has its line, its sentence and its hint; never a traceback."""
# ruff: noqa: E501 - tables of cases are read a case a line

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from tests.support.hostile import BOMB

from clusterctl.cluster import settings
from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.cluster.settings.options import catalogue
from clusterctl.cluster.settings.variables import LEAST
from clusterctl.errors import ClusterctlError

from .cluster_directories import cluster, found, only


def test_the_example_is_valid(repository: Path) -> None:
    assert settings.check(ClusterDirectory(repository / "inventory/example")) == []


def test_every_default_that_the_example_shows_is_valid(repository: Path, tmp_path: Path) -> None:
    shutil.copytree(repository / "inventory/example", tmp_path, dirs_exist_ok=True)
    shown = 0
    for path in (tmp_path / "group_vars").glob("*.yml"):
        text, number = re.subn(r"(?m)^# ([a-z_]+:|  [a-z-]+: )", r"\1", path.read_text())
        path.write_text(text)
        shown += number
    assert shown > 15
    assert found(ClusterDirectory(tmp_path)) == []


def test_every_setting_is_known_and_a_good_directory_passes(tmp_path: Path) -> None:
    assert {"hardware_profile", "site_http_proxy", "cluster_name"} <= set(catalogue())
    directory = cluster(
        tmp_path,
        group_vars__all='ansible_user: ops\nsite_anything: [1, {a: b}]\nhardware_gpu_count: "{{ site_anything[0] }}"\n',
        group_vars__gpu_nodes__more="hardware_gpu_model: NVIDIA A100-SXM4-80GB\n",
        host_vars__gpu01="ansible_become_password: !vault |\n  $ANSIBLE_VAULT;1.1;AES256\n  6162\n",
    )
    assert found(directory) == []
    settings.require_valid(directory)


@pytest.mark.parametrize(
    ("written", "line", "said"),
    [
        ("a_typo: 1\n", 1, "unknown setting a_typo | A variable of your own starts with site_."),
        (
            "\nhardware_gpu_cuont: 8\n",
            2,
            "unknown setting hardware_gpu_cuont | Did you mean hardware_gpu_count?",
        ),
        ("site_htp_proxy: x\n", 1, "unknown setting site_htp_proxy | Did you mean site_http_proxy?"),
        ("ansible_usr: x\n", 1, "unknown setting ansible_usr | Did you mean ansible_user?"),
        ("hardware_gpu_count: eight\n", 1, "hardware_gpu_count must be a whole number, not 'eight'"),
        ("hardware_gpu_count: 8.5\n", 1, "must be a whole number, not '8.5'"),
        ("hardware_gpu_count: true\n", 1, "must be a whole number, not 'true'"),
        (
            "harbor_jobservice_max_hours: 12\n",
            1,
            "harbor_jobservice_max_hours must be 24 or more, not 12 | Maximum",
        ),
        ("training_image_link_mbps: '-1'\n", 1, "training_image_link_mbps must be 0 or more, not -1"),
        ("preflight_gpu_count: -2\n", 1, "preflight_gpu_count must be -1 or more"),
        ("training_image_room_factor: -.5\n", 1, "training_image_room_factor must be 0 or more"),
        ("hardware_gpu_count: 010\n", 1, "must be a whole number, not '010'"),
        ("hardware_gpu_count: [8]\n", 1, "must be a whole number, not a list"),
        ("hardware_gpu_count:\n", 1, "hardware_gpu_count has no value"),
        (
            "cluster_name: 580.10\n",
            1,
            "must be text, not '580.10' | YAML reads this as a number: put it in quotes",
        ),
        ("cluster_name: no\n", 1, "YAML reads this as true or false: put it in quotes"),
        ("cluster_name: 2026-01-01\n", 1, "YAML reads this as a date: put it in quotes"),
        ("cluster_name: {a: b}\n", 1, "cluster_name must be text, not a mapping"),
        ("cluster_name: a\ncluster_name: b\n", 2, "cluster_name is set twice: in line 1 too"),
        ("cluster_name: {{ x }}\n", 1, "a value that starts with {{ must be in quotes"),
        ('cluster_name: "{{ x "\n', 1, "the template of cluster_name cannot be read"),
        ("cluster_name: a: b\n", 1, "this is not YAML"),
        ("cluster_name:\n\tb: 1\n", 2, "there is a tab; YAML requires spaces"),
        ("- a\n- b\n", 1, "this is not a mapping"),
        ("just text\n", 1, "this is not a mapping"),
        ("a: [\n", 2, "this is not YAML"),
        (
            "cluster_name: a\n---\ncluster_name: b\n",
            2,
            "a second document starts here | Remove the line `---`",
        ),
        ("cluster_name: !!python/object:os.system x\n", 1, "the tag tag:yaml.org,2002:python/object"),
        ("? [a, b]\n: 1\n", 1, "a list is not a valid setting name"),
        ("580: 1\n", 1, "'580' is not a valid setting name"),
        ("ansible_host: -oProxyCommand=id\n", 1, "ansible_host is not an address: '-oProxyCommand=id'"),
        (
            "\nansible_ssh_common_args: -F 'my config\n",
            2,
            "ansible_ssh_common_args cannot be split into words: No closing quotation | Write it as in a shell",
        ),
        ('ansible_ssh_extra_args: "-o \\"A=b"\n', 1, "ansible_ssh_extra_args cannot be split into words"),
        ("cluster_name: *nowhere\n", 1, "this is not YAML: found undefined alias 'nowhere'"),
        ("site_a: &a [*a]\n", 1, "its anchors and aliases unfold without end"),
        ("cluster_name: a\x00b\n", 1, "there is a character that YAML does not allow"),
        (b"cluster_name: \xff\n", 1, "this is not UTF-8 text"),
        (b"a: 1\nb: \xc3\n", 2, "this is not UTF-8 text"),
    ],
)
def test_what_is_wrong_has_its_line_and_its_sentence(
    tmp_path: Path, written: str | bytes, line: int, said: str
) -> None:
    file, at_line, sentence = only(cluster(tmp_path, group_vars__all=written))
    assert (file, at_line) == ("group_vars/all.yml", line)
    assert said in sentence


def test_the_least_number_and_a_template_are_allowed(tmp_path: Path) -> None:
    least = "".join(f"{name}: {number}\n" for name, number in LEAST.items())
    assert found(cluster(tmp_path, group_vars__all=least)) == []
    assert found(cluster(tmp_path, group_vars__all="preflight_gpu_count: '{{ -5 }}'\n")) == []


def test_every_least_number_is_of_a_number_whose_description_names_it() -> None:
    for name, number in LEAST.items():
        option = catalogue()[name]
        assert option.type in ("int", "float"), name
        assert re.search(rf"(?<![\d-]){number}\b", option.description), f"{name}: say what {number} means"


def test_a_least_number_that_a_description_states_is_enforced() -> None:
    stated = {
        name for name, option in catalogue().items() if re.search(r"\bat least -?\d", option.description)
    }
    assert stated and stated <= set(LEAST), "add the least number to LEAST of settings/variables.py"


def test_aliases_that_unfold_to_a_billion_are_refused_at_once(tmp_path: Path) -> None:
    assert "unfold without end" in only(cluster(tmp_path, group_vars__all=BOMB))[2]


def test_nesting_that_is_too_deep_is_a_sentence(tmp_path: Path) -> None:
    assert "nested more than 64 deep" in only(cluster(tmp_path, group_vars__all="site_a: " + "[" * 5000))[2]


@pytest.mark.parametrize("written", ["", "---\n", "# only words\n", "\ufeffcluster_name: a\n"])
def test_empty_files_of_variables_are_good(tmp_path: Path, written: str) -> None:
    assert found(cluster(tmp_path, group_vars__all=written)) == []


def test_an_encrypted_file_is_believed(tmp_path: Path) -> None:
    directory = cluster(tmp_path, group_vars__all="$ANSIBLE_VAULT;1.1;AES256\n616263\n")
    assert found(directory) == []


def test_all_problems_come_at_once_with_exit_code_2(tmp_path: Path) -> None:
    directory = cluster(tmp_path, group_vars__all="cluster_nam: a\nhardware_gpu_count: x\n")
    with pytest.raises(ClusterctlError) as caught:
        settings.require_valid(directory)
    assert caught.value.exit_code == 2
    assert "2 problems" in caught.value.what
    assert "all.yml:1: unknown setting cluster_nam (Did you mean cluster_name?)" in caught.value.what
    assert "all.yml:2: hardware_gpu_count must be a whole number" in caught.value.what


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("ansible_host_key_checking: false", "ansible_host_key_checking must not be false"),
        ("ansible_ssh_host_key_checking: no", "ansible_ssh_host_key_checking must not be false"),
        ("ansible_ssh_args: -o UserKnownHostsFile=/elsewhere", "ansible_ssh_args is set by clusterctl"),
    ],
)
def test_host_keys_cannot_be_left_unchecked(tmp_path: Path, line: str, said: str) -> None:
    file, number, sentence = only(cluster(tmp_path, group_vars__all=f"{line}\n"))
    assert (file, number) == ("group_vars/all.yml", 1)
    assert sentence.startswith(said)


@pytest.mark.parametrize(
    "key", ["D42D0685", "C95B321B61E88C1809C4F759DDCAE044F796ECBX", "'0x" + 40 * "1" + "'"]
)
def test_a_key_is_pinned_by_its_whole_fingerprint(tmp_path: Path, key: str) -> None:
    line = f"nvidia_container_toolkit_repository_key_fingerprints: [{'AB' * 20}, {key}]\n"
    _, _, sentence = only(cluster(tmp_path, group_vars__all=line))
    assert "is not a fingerprint of 40 hexadecimal digits" in sentence


@pytest.mark.parametrize(
    "value",
    [
        "[C95B321B61E88C1809C4F759DDCAE044F796ECB0]",
        "['c95b 321b 61e8 8c18 09c4  f759 ddca e044 f796 ecb0']",
        "['{{ site_key }}']",
        "[]",
    ],
)
def test_a_fingerprint_may_be_written_as_gpg_prints_it(tmp_path: Path, value: str) -> None:
    text = f"site_key: x\nnvidia_driver_repository_key_fingerprints: {value}\n"
    assert found(cluster(tmp_path, group_vars__all=text)) == []


def test_a_signer_of_bundles_is_a_public_key(tmp_path: Path) -> None:
    key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAv+w1VhGM6XdLRKCWoglfRNFbXEldpH9GPyMMFHXkUa release@site"
    good = f"site_key: x\nimages_bundle_signers: ['{key}', '{{{{ site_key }}}}']\n"
    assert found(cluster(tmp_path / "good", group_vars__all=good)) == []
    for wrong in ("/etc/release.pub", key[:40], key.replace("ed25519", "dss", 1)):
        line = f"images_bundle_signers: ['{wrong}']\n"
        _, _, sentence = only(cluster(tmp_path / str(len(wrong)), group_vars__all=line))
        assert "an entry of images_bundle_signers is not an SSH public key" in sentence


def test_host_keys_may_be_checked_by_name(tmp_path: Path) -> None:
    assert found(cluster(tmp_path, group_vars__all="ansible_host_key_checking: true\n")) == []
