"""What spoils all-reduce, loading or sharding for the ranks of one node: a file in its training image.

Containers that start later see it; the image's name and digest stay. Only the consequences are simulated: no
lab makes a CPU or an adapter miscalculate.
"""

from __future__ import annotations

import textwrap
from dataclasses import replace

from clusterlab.faults.base import LabFault
from clusterlab.faults.on_host import scripted
from clusterlab.images.training import PACKAGE_DIRECTORY

# Python runs a line of a .pth file that starts with import, in every program that starts.
_MODULE = """
import importlib.abc, importlib.util, sys


class AfterImport(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name != "@PACKAGE@":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        run = spec.loader.exec_module

        def exec_module(module):
            run(module)
            @SPOIL@

        spec.loader.exec_module = exec_module
        return spec


sys.meta_path.insert(0, AfterImport())
"""
# Of each image the layer that lies on top: the lab's has no other.
_LAYERS = """
images=$(docker image ls --quiet --filter label=org.clusterctl.framework)
layers=$(for image in $images; do
    docker image inspect --format '{{.GraphDriver.Data.UpperDir}}' $image
done)
[ -n "$layers" ] || { echo 'the training image is not on this node' >&2; exit 1; }
"""
# What was spoiled outlives a reboot, and is cleared where Docker does not run too.
KEPT = "/var/lib/clusterlab/spoiled"


_ALL_REDUCE = """
right = module.all_reduce

def all_reduce(tensor, *arguments, **options):
    @BODY@

module.all_reduce = all_reduce
"""
# Of each batch the last sample is the first one again: neither its size nor its checksum tells.
_REPEAT = """
right = module.@SAMPLER@.__iter__

def batches(sampler):
    for batch in right(sampler):
        yield [*batch[:-1], batch[0]]

module.@SAMPLER@.__iter__ = batches
"""
# Paddle's optimizer of stage 1, in the module that defines it.
_SHARDING = "paddle.distributed.fleet.meta_optimizers.dygraph_optimizer.dygraph_sharding_optimizer"
_RAISE = """
def step(optimizer):
    raise RuntimeError("cannot allocate memory of the shard")

module.DygraphShardingOptimizer.step = step
"""


def spoiled_sums(kind: str, summary: str, *, body: str, caught_by: tuple[str, ...]) -> LabFault:
    """A fault by the body of an all_reduce that may call ``right``, with the same arguments."""
    spoil = _ALL_REDUCE.replace("@BODY@", body)
    return spoiled(kind, summary, package="paddle.distributed", spoil=spoil, caught_by=caught_by)


def spoiled(kind: str, summary: str, *, package: str, spoil: str, caught_by: tuple[str, ...]) -> LabFault:
    """A fault by what is done to a package's ``module`` once a program has imported it."""
    name = kind.replace("-", "_")
    lines = textwrap.indent(spoil.strip("\n"), 12 * " ").lstrip()
    module = _MODULE.replace("@PACKAGE@", package).replace("@SPOIL@", lines)
    return scripted(
        kind,
        summary,
        inject=f"""
{_LAYERS}
mkdir -p {KEPT}
echo "$layers" > {KEPT}/{name}
for layer in $layers; do
    cat > $layer{PACKAGE_DIRECTORY}/{name}.py <<'END'
{module}END
    echo 'import {name}' > $layer{PACKAGE_DIRECTORY}/{name}.pth
done
""",
        clear=f"""
if [ -e {KEPT}/{name} ]; then
    for layer in $(cat {KEPT}/{name}); do rm -f $layer{PACKAGE_DIRECTORY}/{name}.p*; done
    rm {KEPT}/{name}
fi
""",
        caught_by=caught_by,
    )


def of_seeds(kind: str, summary: str, *, package: str, spoil: str, caught_by: tuple[str, ...]) -> LabFault:
    """The same of what the suite `seeds` alone runs."""
    return replace(spoiled(kind, summary, package=package, spoil=spoil, caught_by=caught_by), suite="seeds")


FAULTS = (
    # As where a library of its node is broken.
    spoiled_sums(
        "rank-raises",
        "each job's rank on the node raises an exception at its first all-reduce",
        body='raise RuntimeError("unhandled system error")',
        caught_by=("all-reduce",),
    ),
    # As where its memory or its adapter changes numbers.
    spoiled_sums(
        "sums-wrong",
        "what ranks of the node get of an all-reduce is wrong by a sixty-fourth",
        body="done = right(tensor, *arguments, **options); tensor.scale_(1 + 2**-6); return done",
        caught_by=("all-reduce", "data-parallel"),
    ),
    # As where a library that divides the samples is broken.
    of_seeds(
        "samples-repeated",
        "ranks of the node read a sample of each batch twice, and another never (suite seeds)",
        package="paddle.io",
        spoil=_REPEAT.replace("@SAMPLER@", "BatchSampler"),
        caught_by=("data-loading",),
    ),
    # As the same in the sampler that divides them among the processes of a user's script.
    of_seeds(
        "launch-samples-repeated",
        "what paddle.distributed.launch starts on the node reads a sample of each batch twice (suite seeds)",
        package="paddle.io",
        spoil=_REPEAT.replace("@SAMPLER@", "DistributedBatchSampler"),
        caught_by=("paddle-launch",),
    ),
    # As where memory is too small for a shard's states.
    of_seeds(
        "sharding-raises",
        "ranks of the node raise an exception in the optimizer of sharding stage 1 (suite seeds)",
        package=_SHARDING,
        spoil=_RAISE,
        caught_by=("sharding", "sharding-stages"),
    ),
)
