"""The embedded registry's storage releases what no manifest names, while nobody pushes."""

from __future__ import annotations

from clustercheck.launch.transport import NodeUnreachableError, Transport
from clusterctl.errors import EXIT_CLUSTER_BAD, ClusterctlError

COLLECT_S = 3600.0
# A unit of the registry's own host: it ends as it must when nobody here waits for it any more, the pushing
# listener and it are never up together, whoever starts which, and both listeners come back however it ends.
# What it removes is removed as the registry's user, whose links would lead root elsewhere.
COLLECT = """
unit=clusterctl-registry-collect.service
public=clusterctl-registry.service push=clusterctl-registry-push.service
# The pushing listener waits for this unit's end, and this unit must not wait for it.
again="systemctl restart $public; systemctl --no-block start $push"
systemd-run --quiet --collect --wait --unit=$unit --property=Conflicts=$push --property=After=$push \\
    --property=StandardOutput=null --property=StandardError=journal \\
    --property="ExecStopPost=/bin/sh -c '$again'" \\
    setpriv --reuid=docker-registry --regid=docker-registry --clear-groups --no-new-privs \\
    docker-registry garbage-collect /etc/clusterctl/registry/clusterctl-registry-push.yml
code=$?
[ $code = 0 ] || journalctl --unit=$unit --lines=1 --no-pager --output=cat >&2
systemctl is-active --quiet $public || systemctl start $public || code=$?
systemctl start $push || code=$?
exit $code
"""


def collect(transport: Transport, node: str) -> None:
    """Have the embedded registry's storage release what no manifest names.

    Nothing may be pushed meanwhile, and a listener that continues would say that it has what is gone. Raises
    ClusterctlError (``images.not-collected``).
    """
    try:
        done = transport.run(node, ["sh", "-c", COLLECT], timeout_s=COLLECT_S)
        message = "" if done.exit_code == 0 else (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
    except NodeUnreachableError as error:
        message = error.because
    if message:
        raise ClusterctlError(
            f"the registry's space was not freed: {message}",
            code="images.not-collected",
            where=node,
            hint="The images are removed. See that both services run: clusterctl apply --only registry",
            exit_code=EXIT_CLUSTER_BAD,
        )
