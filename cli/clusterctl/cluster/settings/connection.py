"""The connection variables of Ansible that an inventory may hold; another `ansible_*` is a typo."""

from __future__ import annotations

import re

from clusterctl.cluster.settings.options import Option

_TYPED = {
    "ansible_host": "str",
    "ansible_user": "str",
    "ansible_port": "int",
    "ansible_become": "bool",
    "ansible_ssh_host": "str",
    "ansible_ssh_user": "str",
    "ansible_ssh_port": "int",
    "ansible_ssh_retries": "int",
    "ansible_ssh_timeout": "int",
    "ansible_ssh_common_args": "str",
    "ansible_ssh_extra_args": "str",
    "ansible_ssh_args": "str",
    "ansible_ssh_private_key_file": "path",
    "ansible_private_key_file": "path",
    "ansible_python_interpreter": "path",
    "ansible_ssh_pipelining": "bool",
    "ansible_pipelining": "bool",
    "ansible_host_key_checking": "bool",
    "ansible_ssh_host_key_checking": "bool",
}
_UNTYPED = [
    "ansible_admin_users",
    "ansible_async_dir",
    "ansible_become_exe",
    "ansible_become_flags",
    "ansible_become_method",
    "ansible_become_pass",
    "ansible_become_password",
    "ansible_become_user",
    "ansible_become_plugin",
    "ansible_common_remote_group",
    "ansible_connection",
    "ansible_control_path",
    "ansible_control_path_dir",
    "ansible_module_compression",
    "ansible_no_target_syslog",
    "ansible_password",
    "ansible_private_key",
    "ansible_private_key_passphrase",
    "ansible_python_module_rlimit_nofile",
    "ansible_remote_tmp",
    "ansible_scp_executable",
    "ansible_scp_extra_args",
    "ansible_sftp_batch_mode",
    "ansible_sftp_executable",
    "ansible_sftp_extra_args",
    "ansible_shell_allow_world_readable_temp",
    "ansible_shell_executable",
    "ansible_shell_type",
    "ansible_ssh_executable",
    "ansible_ssh_pass",
    "ansible_ssh_password",
    "ansible_ssh_password_mechanism",
    "ansible_ssh_pkcs11_provider",
    "ansible_ssh_private_key",
    "ansible_ssh_private_key_passphrase",
    "ansible_ssh_transfer_method",
    "ansible_ssh_use_tty",
    "ansible_ssh_verbosity",
    "ansible_sshpass_prompt",
    "ansible_su_exe",
    "ansible_su_flags",
    "ansible_su_pass",
    "ansible_su_user",
    "ansible_sudo_chdir",
    "ansible_sudo_exe",
    "ansible_sudo_flags",
    "ansible_sudo_pass",
    "ansible_sudo_user",
    "ansible_system_tmpdirs",
    "ansible_timeout",
]
CONNECTION_VARIABLES = {
    **{name: Option(name, kind) for name, kind in _TYPED.items()},
    **{name: Option(name, "raw") for name in _UNTYPED},
}
_INTERPRETER = re.compile(r"ansible_[a-z0-9_]+_interpreter")


def connection_variable(name: str) -> Option | None:
    """The connection variable of that name, or None."""
    known = CONNECTION_VARIABLES.get(name)
    if known is None and _INTERPRETER.fullmatch(name):
        return Option(name, "path")
    return known
