"""The training image by its tag: apply goes by the lock's digest, and by no lock of other settings."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from tests.support.signed_images import cosign_key, public_pem

from clusterctl.cluster import lock as lock_file
from clusterctl.cluster.inventory import load
from clusterctl.cluster.lock import Lock, LockedBlob, LockedImage
from clusterctl.cluster.spec import cluster_spec
from clusterctl.errors import ClusterctlError
from clusterctl.registry.images.signatures import cosign
from clusterctl.rollout import opening
from clusterctl.rollout.drift.inputs import digest_inputs
from clusterctl.rollout.drift.probe import DriftProbe
from clusterctl.rollout.training import pinned

DIGEST, OTHER = "sha256:" + "a" * 64, "sha256:" + "b" * 64
TAGGED = {"training_image_source": "docker.io/x/paddle", "training_image_tag": "1"}


def declare(listing, **settings):
    for variables in listing["_meta"]["hostvars"].values():
        variables.update(settings)


def lock(cluster, **other):
    blob = LockedBlob(digest=DIGEST, size=1)
    image = LockedImage(
        **{"name": "training", "source": "docker.io/x/paddle:1", "target": "library/paddle", "tag": "1",
           "digest": DIGEST, "manifest": DIGEST, "platforms": ("linux/amd64",), "config": blob,
           "layers": (blob,), **other}
    )  # fmt: skip
    lock_file.write(cluster, Lock(images=(image,)))


def digests(ansible):
    return {request.extra_vars.get("training_image_digest") for request in ansible.requests}


def test_a_tag_goes_to_the_nodes_by_the_digest_of_the_lock(clusterctl, cluster, listing, ansible):
    declare(listing, **TAGGED)
    lock(cluster)
    for words in (["plan"], ["apply", "--yes"], ["apply", "--yes", "--only", "images"]):
        ansible.requests.clear()
        assert clusterctl(*words) == 0
        assert digests(ansible) == {DIGEST}
    assert cluster_spec(pinned(load(cluster)).inventory).image.endswith(f"@{DIGEST}")
    assert cluster_spec(load(cluster)).image == "", "lock and images read the settings as they are"


def test_what_decides_an_apply_is_the_same_before_and_after_it(cluster, listing):
    declare(listing, **TAGGED)
    lock(cluster)
    chosen = opening.select(cluster.root, None)
    session = SimpleNamespace(extra_vars=dict(chosen.locked))
    inputs = digest_inputs(chosen.inventory, session.extra_vars)
    probe = DriftProbe(session, chosen, None, inputs, whole_site=True, every_task=False)
    assert probe._digest_inputs_now() == probe.inputs
    lock(cluster, digest=OTHER)
    assert probe._digest_inputs_now() != probe.inputs


def test_a_declared_digest_comes_before_that_of_the_lock(clusterctl, cluster, listing, ansible):
    declare(listing, **TAGGED)
    listing["_meta"]["hostvars"]["gpu02"]["training_image_digest"] = OTHER
    lock(cluster)
    assert clusterctl("apply", "--yes") == 0
    assert digests(ansible) == {None}


def test_a_lock_of_another_image_is_refused_and_one_that_is_not_there_is_said(
    clusterctl, cluster, listing, ansible, capsys
):
    declare(listing, **TAGGED)
    assert clusterctl("apply", "--yes") == 0
    assert "is declared by its tag, and is not locked" in capsys.readouterr().err
    assert digests(ansible) == {None}
    ansible.requests.clear()
    lock(cluster, source="docker.io/x/paddle:0", tag="0")
    for words in (["apply", "--yes"], ["plan"], ["preflight"]):
        assert clusterctl(*words) == 2
        assert "images.stale-lock" in capsys.readouterr().err
    assert ansible.requests == []


def test_hosts_with_another_tag_are_not_given_the_digest_of_the_first(
    clusterctl, cluster, listing, ansible, capsys
):
    declare(listing, **TAGGED)
    listing["_meta"]["hostvars"]["gpu03"]["training_image_tag"] = "2"
    lock(cluster)
    assert clusterctl("apply", "--yes") == 2
    assert "gpu03 declare another training image" in capsys.readouterr().err
    assert ansible.requests == []


@pytest.mark.parametrize("settings", [TAGGED, {**TAGGED, "training_image_digest": DIGEST}])
def test_an_image_that_the_driver_cannot_run_is_refused_before_any_host_is_touched(
    *, clusterctl, cluster, listing, ansible, capsys, settings
):
    declare(listing, **settings, nvidia_driver_branch="570")
    source = f"docker.io/x/paddle@{DIGEST}" if "training_image_digest" in settings else "docker.io/x/paddle:1"
    needs = {"cuda": "13.0", "drivers": (("580.65.06", ""),), "minimum_driver": "580.65.06"}
    lock(cluster, source=source, **needs)
    for words in (["apply", "--yes"], ["plan"]):
        assert clusterctl(*words) == 2
        assert "needs driver 580.65.06" in capsys.readouterr().err
    assert ansible.requests == []
    # What concerns no image is not refused over one: a lease is freed, a backup is made.
    assert opening.everyone(cluster.root).names == ("gpu01", "gpu02", "gpu03", "registry01")
    assert opening.select_for_registry(cluster.root).names
    declare(listing, training_image_enabled=False)
    assert clusterctl("plan") == 0


def test_a_lock_that_cannot_be_read_is_said(cluster, listing):
    declare(listing, **TAGGED)
    lock_file.path(cluster).write_text("[", encoding="utf-8")
    with pytest.raises(ClusterctlError, match="the lock cannot be read"):
        opening.select(cluster.root, None)


REJECT = {"default": [{"type": "reject"}]}
KEYS = {"default": [{"type": "sigstoreSigned", "keyPath": "cosign.pub"}]}


@pytest.mark.parametrize("declared", ["by its tag", "by its digest", "by its digest on one host"])
def test_a_training_image_whose_signature_is_not_recorded_reaches_no_host(
    declared, clusterctl, cluster, listing, ansible
):
    (cluster.root / "cosign.pub").write_bytes(public_pem(cosign_key()))
    declare(listing, **TAGGED, images_signatures=KEYS)
    lock(cluster)
    if declared == "by its digest":
        declare(listing, training_image_digest=OTHER)
    elif declared == "by its digest on one host":
        listing["_meta"]["hostvars"]["gpu02"]["training_image_digest"] = OTHER
    for words in (["plan"], ["apply", "--yes"]):
        assert clusterctl(*words) == 1
    with pytest.raises(ClusterctlError) as refused:
        opening.select(cluster.root, None)
    assert refused.value.code == "images.signature"
    assert ansible.requests == []


def test_a_training_image_with_a_recorded_signature_or_an_accepted_scope_is_applied(
    clusterctl, cluster, listing, ansible
):
    (cluster.root / "cosign.pub").write_bytes(public_pem(cosign_key()))
    declare(listing, **TAGGED, images_signatures=KEYS)
    key = cosign.read_key(public_pem(cosign_key())).fingerprint
    signature = {
        "kind": "cosign",
        "key": key,
        "signed": DIGEST,
        "payload": OTHER,
        "at": "2026-01-01T00:00:00Z",
    }
    lock(cluster, signatures=(signature,))
    assert clusterctl("plan") == 0
    accepted = {"docker": {"docker.io/x": [{"type": "insecureAcceptAnything"}]}}
    declare(listing, images_signatures={**REJECT, "transports": accepted}, training_image_digest=OTHER)
    assert clusterctl("plan") == 0
    assert ansible.requests


def test_a_policy_that_only_some_hosts_have_is_not_passed_over(clusterctl, cluster, listing, ansible, capsys):
    declare(listing, **TAGGED)
    listing["_meta"]["hostvars"]["gpu02"]["images_signatures"] = REJECT
    lock(cluster)
    for words in (["plan"], ["apply", "--yes"], ["lock", "--check"]):
        assert clusterctl(*words) == 2
        assert "gpu02 has another images_signatures than gpu01" in capsys.readouterr().err
    assert ansible.requests == []


@pytest.mark.parametrize("words", [["--check"], []])
def test_no_image_is_built_on_a_base_that_the_policy_refuses(words, clusterctl, cluster, listing, capsys):
    build = {"name": "site", "base": "training", "target": "site/image:1"}
    declare(listing, **TAGGED, images_signatures=REJECT, image_builds=[build])
    lock(cluster)
    assert clusterctl("images", "build", *words) == 1
    told = capsys.readouterr()
    assert "the image training is not signed as images_signatures demands" in told.err
    assert "FROM" not in told.out
    declare(listing, images_signatures={"default": [{"type": "insecureAcceptAnything"}]})
    assert clusterctl("images", "build", "--check") == 0
    assert "FROM" in capsys.readouterr().out


def test_signers_of_bundles_that_only_some_hosts_have_are_not_passed_over(
    clusterctl, listing, capsys, tmp_path
):
    listing["_meta"]["hostvars"]["registry01"]["images_bundle_signers"] = ["ssh-ed25519 AAAA release"]
    assert clusterctl("images", "bundle", "load", str(tmp_path / "usb")) == 2
    assert "registry01 has another images_bundle_signers than gpu01" in capsys.readouterr().err
