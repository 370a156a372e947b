"""The comments of the example inventory, as they are generated from the descriptions of settings."""

from __future__ import annotations

import textwrap

from clusterctl.cluster.settings.options import Option
from clusterctl.reference.example import with_descriptions

CATALOGUE = {
    "role_mode": Option("role_mode", choices=("auto", "hook"), default="auto", description="How it works."),
    "role_options": Option("role_options", type="dict", default={}, description="Keys to merge."),
    "role_follows": Option("role_follows", default="{{ role_mode }}", description="Follows another."),
    "role_count": Option("role_count", type="int", description="How many."),
}


def made(text: str) -> list[str]:
    written = with_descriptions(textwrap.dedent(text), CATALOGUE)
    assert with_descriptions(written, CATALOGUE) == written
    return written.splitlines()


def test_the_comment_above_a_setting_is_its_description_and_all_else_is_kept() -> None:
    assert made(
        """\
        ---
        # About the file.

        # ---- A heading ----
        # An old comment
        # of two lines.
        role_count: 8
        # Another.
        # role_options:
        #   log-driver: json-file
        # role_follows: x
        # About a variable of Ansible.
        ansible_user: root
        # role_mode: auto
        """
    ) == [
        "---",
        "# About the file.",
        "",
        "# ---- A heading ----",
        "# How many.",
        "role_count: 8",
        "# Keys to merge.",
        "# role_options:",
        "#   log-driver: json-file",
        "# Follows another.",
        "# role_follows: x",
        "# About a variable of Ansible.",
        "ansible_user: root",
        "# How it works. One of auto, hook.",
        "# role_mode: auto",
    ]


def test_an_example_that_is_not_the_default_names_the_default() -> None:
    assert made("# role_mode: hook\n") == [
        "# How it works. One of auto, hook. Default: auto.",
        "# role_mode: hook",
    ]
