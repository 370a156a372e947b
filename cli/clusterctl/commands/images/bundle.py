"""`clusterctl images bundle create|load`: images and files over an air gap."""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import click

from clusterctl import console
from clusterctl.cluster import lock as lock_file
from clusterctl.cluster.access import Passwords, password_options
from clusterctl.cluster.inventory import Inventory
from clusterctl.cluster.lock import Lock
from clusterctl.cluster.opened import opened
from clusterctl.cluster.spec import setting
from clusterctl.cluster.user_path import user_path
from clusterctl.commands.images import bringing, options
from clusterctl.commands.shared.options import json_option
from clusterctl.engine import mutex
from clusterctl.engine.wording import counted
from clusterctl.errors import EXIT_GOOD, ClusterctlError
from clusterctl.registry.images import apt_tree, bundle_signature, gate
from clusterctl.registry.images.bundle import INDEX, Bundle, Media
from clusterctl.registry.images.bundling import Bundler, BundleRecipe
from clusterctl.registry.images.declared import asked_host, cluster_setting, nodes_driver
from clusterctl.registry.images.mirror import survey
from clusterctl.registry.images.outcome import exit_code
from clusterctl.registry.images.registries import Sources, writable
from clusterctl.registry.images.signatures.checking import checker
from clusterctl.registry.images.signatures.verifying import verify_signatures
from clusterctl.registry.images.trees import Tree
from clusterctl.registry.images.unbundling import BundleOrigin, check, put_files, require_own_directory
from clusterctl.registry.oci.retry import RetryPolicy
from clusterctl.rollout import tables

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
MB = 1_000_000
# FAT, which many media come with, holds no file of 4 GiB.
PART_MB = 4000
BUNDLES_LOCK = Path("the bundle's lock")


def _hex(_context: click.Context, _parameter: click.Parameter, value: str) -> str:
    if value and not re.fullmatch(r"[0-9a-fA-F]{64}", value):
        raise click.BadParameter("a SHA-256 is 64 hexadecimal digits")
    return value.lower()


@click.group("bundle")
def command() -> None:
    """Transfer images and files to an air-gapped cluster."""


@command.command("create")
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--include", multiple=True, metavar="NAME=PATH",
    help="Files to include: package mirrors, an installer, wheels. May be repeated.",
)  # fmt: skip
@click.option(
    "--apt-sources", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
    help="Where Debian packages come from: a .list or .sources file of apt, with signed-by for each.",
)  # fmt: skip
@click.option(
    "--package", "packages", multiple=True, metavar="NAME",
    help="A Debian package to include, with its dependencies. May be repeated.",
)  # fmt: skip
@click.option(
    "--part-size", type=click.FloatRange(min=0.001), default=PART_MB, show_default=True, metavar="MB",
    help="Maximum size of the bundle's files.",
)  # fmt: skip
@click.option(
    "--sign-with", "key", type=click.Path(path_type=Path, dir_okay=False), metavar="KEY",
    help="Sign the bundle with this private key of ssh-keygen; a public key means one of the ssh-agent.",
)  # fmt: skip
@options.jobs_option
@json_option
@click.pass_obj
def create(
    named: Path | None,
    directory: Path,
    *,
    include: tuple[str, ...],
    apt_sources: Path | None,
    packages: tuple[str, ...],
    part_size: float,
    key: Path | None,
    jobs: int,
    as_json: bool,
) -> int:
    """Create a bundle of every locked image, of Debian packages, and of files.

    If it is interrupted, the same command continues where it stopped. It is complete when bundle.json
    exists. Every part is named by its SHA-256.
    """
    inventory = opened(named)
    if key is not None:
        bundle_signature.require_signing_key(key)
    images = gate.locked_images(inventory)
    gate.require_driver(images, nodes_driver(inventory))
    lock = lock_file.read(inventory.directory) or Lock()
    recipe = BundleRecipe(
        cluster=str(setting(asked_host(inventory), "cluster_name") or inventory.directory.root.name),
        lock=lock_file.text_of(lock),
        images=images,
        trees=[_tree(word) for word in include],
        part_size=int(part_size * MB),
    )
    wanted = _packages(inventory, apt_sources, packages)
    # Not on the medium: what apt finds in its own directory it believes, and some of it it runs.
    place = hashlib.sha256(str(directory.resolve()).encode()).hexdigest()[:16]
    packages_place = inventory.directory.state / "images" / "packages" / place
    with options.stoppable() as stop, Sources(inventory, RetryPolicy(stop=stop)) as sources:
        if (signatures := checker(inventory)) is not None:
            for error in verify_signatures(signatures, images, sources.of, stop).failures.values():
                raise error
        bundler = Bundler(directory, sources.of, stop, jobs)
        with bundler.held():
            if wanted is not None:
                root = apt_tree.tree(wanted, packages_place)
                recipe = replace(recipe, trees=[*recipe.trees, Tree("apt", root)])
            made = bundler.make(recipe)
            if made.index is not None:
                shutil.rmtree(packages_place, ignore_errors=True)
    code = exit_code(made.outcomes)
    bundle, digest = made.index, hashlib.sha256(made.raw).hexdigest()
    finished = bundle is not None
    signature = bundle_signature.sign(made.raw, bundler.directory / INDEX, key) if finished and key else None
    size = sum(part.size for part in bundle.parts.values()) if bundle else 0
    if as_json:
        for one in made.outcomes:
            console.emit(one.as_record())
        files = len(bundle.files) if bundle else 0
        console.emit(
            {"type": "summary", "directory": str(directory), "images": len(made.outcomes), "files": files,
             "bytes": size, "finished": finished, "exit": code,
             **({"index_sha256": digest} if finished else {}),
             **({"signature": str(signature)} if signature else {})}
        )  # fmt: skip
        return code
    options.tell_failures(made.outcomes)
    if bundle is None:
        console.say("the bundle is incomplete; the same command resumes it")
        return code
    words = f"{counted(len(images), 'image')} and {counted(len(bundle.files), 'file')}, {options.size(size)}"
    console.RESULTS.print(f"{words} in {counted(len(bundle.parts), 'part')}: {directory}")
    console.RESULTS.print(f"SHA-256 of its index (load --sha256): {digest}", soft_wrap=True)
    if signature is not None:
        console.RESULTS.print(f"signature, which travels with it: {signature}", soft_wrap=True)
    return code


@command.command("load")
@click.argument("directories", nargs=-1, required=True, metavar="DIRECTORY...",
                type=click.Path(path_type=Path, file_okay=False))  # fmt: skip
@click.option(
    "--files", "files_to", type=click.Path(path_type=Path, file_okay=False), metavar="DIR",
    help="Put the bundle's files there.",
)  # fmt: skip
@click.option(
    "--check",
    "--dry-run",
    is_flag=True,
    help="Read and verify the whole bundle, and that it can be loaded here; load nothing.",
)
@click.option(
    "--sha256", default="", metavar="HEX", callback=_hex,
    help="The SHA-256 of the index, as printed by `create`: a bundle that was modified since is refused.",
)  # fmt: skip
@click.option(
    "--allow-unsigned", is_flag=True,
    help="Load a bundle whose origin cannot be verified: without a signature and without --sha256.",
)  # fmt: skip
@options.deep_option
@options.to_option
@options.jobs_option
@json_option
@password_options
@click.pass_obj
def load(
    named: Path | None,
    directories: tuple[Path, ...],
    *,
    files_to: Path | None,
    check: bool,
    sha256: str,
    allow_unsigned: bool,
    deep: bool,
    to: str,
    jobs: int,
    as_json: bool,
    passwords: Passwords,
) -> int:
    """Load the images of a bundle into the cluster's registry, and its files into a directory.

    Name all its directories, if it is on several media. Its lock becomes this cluster's, if there is none.
    Existing blobs are not sent again; a damaged part is named. The bundle is refused unless one of the keys
    in the setting images_bundle_signers signed it, or --sha256 pins its index.
    """
    inventory = opened(named)
    if files_to is not None:
        require_own_directory(files_to)
    media = Media(directories)
    bundle = media.index(sha256, _trust(inventory, pinned=bool(sha256), allow_unsigned=allow_unsigned))
    media.require(bundle)
    if check:
        return _checked(inventory, media, bundle, as_json=as_json)
    with (
        options.stoppable() as stop,
        mutex.held(inventory.directory, "images bundle load"),
        writable(inventory, passwords, to, RetryPolicy(stop=stop)) as destination,
    ):
        lock = _accepted(inventory, bundle)
        origin = BundleOrigin(media, bundle)
        plan = survey(lock.images, origin, destination.registry, jobs, deep=deep)
        bringing.require_room(plan, destination)
        job = bringing.TransferJob(
            "bundle", inventory, plan, origin, destination, stop, jobs, show=not as_json
        )
        code = bringing.bring(job, as_json=as_json)
    if files_to is not None:
        new = put_files(media, bundle, files_to)
        console.say(f"{counted(len(bundle.files), 'file')} in {files_to}, {new} of them new")
    elif bundle.files:
        console.say(
            f"{counted(len(bundle.files), 'file')} of the bundle stay in it: --files DIR puts them there"
        )
    return code


def _trust(inventory: Inventory, *, pinned: bool, allow_unsigned: bool) -> Callable[[bytes, Path], None]:
    """Refuses an index whose origin cannot be verified, and says how it was verified."""
    signers = cluster_setting(inventory, bundle_signature.SETTING, bundle_signature.SIGNERS) or []
    policy = bundle_signature.TrustPolicy(tuple(map(str, signers)), pinned, allow_unsigned)

    def require(raw: bytes, index: Path) -> None:
        console.say(bundle_signature.require_trusted(raw, index, policy))

    return require


def _packages(
    inventory: Inventory, sources: Path | None, names: tuple[str, ...]
) -> apt_tree.PackageRequest | None:
    """What to take along of Debian's packages; None if none is named."""
    if bool(names) != (sources is not None) or (sources is not None and not sources.is_file()):
        raise ClusterctlError(
            "--package and --apt-sources go together, and the sources are a file",
            code="images.bundle-tree",
            hint="For example: --apt-sources nodes.sources --package docker.io --package nvidia-open-580",
        )
    host = asked_host(inventory)
    proxy, direct = (str(setting(host, f"site_{name}") or "") for name in ("http_proxy", "no_proxy"))
    return None if sources is None else apt_tree.PackageRequest(sources, names, proxy=proxy, no_proxy=direct)


def _tree(word: str) -> Tree:
    name, _, path = word.partition("=")
    root = user_path(path)
    if not NAME.fullmatch(name) or not path or not root.exists():
        raise ClusterctlError(
            f"{word!r} in --include is no NAME=PATH, or there is nothing at that path",
            code="images.bundle-tree",
            hint="For example: --include wheels=/srv/wheels --include apt=/srv/mirror",
        )
    tree = Tree(name, root)
    # Before anything is written or fetched; the same again when it is cut.
    tree.files()
    for link in tree.loops():
        console.say(f"{link} leads back to a directory that it lies in, and is left out")
    return tree


def _accepted(inventory: Inventory, bundle: Bundle) -> Lock:
    """The bundle's lock, which is now this cluster's. Raises ClusterctlError as ``_require_acceptable``."""
    carried = lock_file.parse(bundle.lock, BUNDLES_LOCK)
    ours = lock_file.read(inventory.directory)
    _require_acceptable(inventory, carried, ours)
    if ours is None:
        lock_file.write(inventory.directory, carried)
        console.say(f"{lock_file.NAME} is now that of the bundle")
    return carried


def _require_acceptable(inventory: Inventory, carried: Lock, ours: Lock | None) -> None:
    """Refuse a bundle's lock that is not this cluster's, if it has one, or not that of its settings, or
    whose images do not run on its nodes.

    Raises ClusterctlError (``images.bundle-lock``, ``images.stale-lock``, ``images.driver``,
    ``images.signature``).
    """
    if ours is not None and ours.images != carried.images:
        raise ClusterctlError(
            "the bundle was made from another lock than this cluster has",
            code="images.bundle-lock",
            where=str(lock_file.path(inventory.directory)),
            hint="Move the file away to take the bundle's, or make the bundle again from this one.",
        )
    if (signatures := checker(inventory)) is not None:
        signatures.require_recorded(carried.images, trusted=ours is not None)
    gate.require_driver(carried.images, nodes_driver(inventory))
    hint = "Take the settings of the cluster that made the bundle; no lock was written here."
    gate.require_agreement(inventory, carried, hint if ours is None else gate.RELOCK)


def _not_loadable(inventory: Inventory, media: Media, bundle: Bundle) -> list[ClusterctlError]:
    """Why ``load`` would refuse the bundle or one of its images, though its parts are as its index says."""
    try:
        carried = lock_file.parse(bundle.lock, BUNDLES_LOCK)
    except ClusterctlError as error:
        return [error]
    found = []
    try:
        _require_acceptable(inventory, carried, lock_file.read(inventory.directory))
    except ClusterctlError as error:
        found.append(error)
    origin = BundleOrigin(media, bundle)
    for image in carried.images:
        try:
            origin.require_whole(image)
        except ClusterctlError as error:
            found.append(error)
    return found


def _checked(inventory: Inventory, media: Media, bundle: Bundle, *, as_json: bool) -> int:
    errors = [error for item in bundle.items if (error := check(media, item)) is not None]
    known = {(error.code, error.where) for error in errors}
    errors += [one for one in _not_loadable(inventory, media, bundle) if (one.code, one.where) not in known]
    size = sum(part.size for part in bundle.parts.values())
    code = max((error.exit_code for error in errors), default=EXIT_GOOD)
    if as_json:
        for error in errors:
            console.emit({"type": "failure", "code": error.code, "what": error.what, "where": error.where})
        console.emit({"type": "summary", "parts": len(bundle.parts), "bytes": size, "exit": code})
        return code
    for error in errors:
        console.explain(error)
    names = ", ".join(image.name for image in bundle.images)
    table = tables.new_table("made", "of", "images", "files", "size")
    table.add_row(bundle.made, bundle.cluster, names, str(len(bundle.files)), options.size(size))
    tables.show(table)
    return code
