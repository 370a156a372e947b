"""What a robot can be allowed, of the system and of a project."""

from __future__ import annotations


def _words(**resources: str) -> frozenset[str]:
    return frozenset(
        f"{resource.replace('_', '-')}:{action}"
        for resource, actions in resources.items()
        for action in actions.split()
    )


SYSTEM = _words(
    audit_log="list",
    catalog="read",
    garbage_collection="read create list update stop",
    jobservice_monitor="list stop",
    label="read create delete update",
    ldap_user="create list",
    preheat_instance="read create delete list update",
    project="list create",
    purge_audit="read create list update stop",
    quota="read list update",
    registry="read create delete list update",
    replication="read create list",
    replication_adapter="list",
    replication_policy="read create delete list update",
    robot="create read list delete",
    scan_all="read update stop create",
    scanner="read create delete list update",
    security_hub="read list",
    system_volumes="read",
    user="create read update list delete",
    user_group="create read update list delete",
)
PROJECT = _words(
    accessory="list",
    artifact="read create list delete",
    artifact_addition="read",
    artifact_label="create delete",
    export_cve="create read",
    immutable_tag="create delete list update",
    label="read create delete list update",
    log="list",
    member="create read update list delete",
    metadata="read create delete list update",
    notification_policy="read create delete list update",
    preheat_policy="read create delete list update",
    project="read delete update",
    quota="read",
    repository="read update delete list pull push",
    robot="create read list delete",
    sbom="create stop read",
    scan="create read stop",
    scanner="create read",
    tag="create list delete",
    tag_retention="read create delete list update",
)
