"""Training of ResNet-50 from files, by Paddle's DataLoader, against the same training on data that is there.

Files of one picture each, with a checksum, in /dev/shm and on declared storage: written first, dropped from
the page cache as far as the file system does that, then read once in random order by worker processes. All
ranks work in parallel, each by itself, each in a directory of its own that it makes and removes.
"""

from __future__ import annotations

import importlib
import os
import socket
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clustercheck.jobs import models, scratch, storage_io, training, training_paddle
    from clustercheck.jobs.rank import World
else:  # on a node they are single files, not a package
    models, scratch, storage_io, training, training_paddle = (
        importlib.import_module(f"{__package__}.{name}" if __package__ else name)
        for name in ("models", "scratch", "storage_io", "training", "training_paddle")
    )

MODEL = "resnet50"
MEMORY = "/dev/shm"  # noqa: S108 - where workers put batches, too
PREFIX = ".clusterctl-loading-"
NAME = "clusterctl.{}.sample"  # of a file in it, of its number: none that another data set has
NAMES = NAME.replace(".", r"\.").format(r"\d{1,9}")
MAX_SAMPLE = 1 << 26  # bytes; a picture of 224 by 224 has 150 kB
NUMBER_BYTES, CHECKSUM_BYTES = 8, 4

join = training_paddle.join


def run(world: World, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments: ``on_gpu`` and ``on_cpu``, each with samples, batch, side, workers, warmup, precision and
    sizes (of `models`); seed; ``storage``, with which the paths of declared storage begin here; and
    ``meetings``, at how many places the rank with most of them loads: all meet as often as that.
    """
    nn: Any = importlib.import_module("frameworks.paddle").PaddleFramework(world)
    chosen, seed = arguments["on_gpu" if world.on_gpu else "on_cpu"], int(arguments.get("seed", 1))
    training_step = _make_step(nn, chosen, seed)
    batch = [nn.tensor(each) for each in training.make_batch(MODEL, chosen, seed + 1)]
    steps, warmup = int(chosen["samples"]) // int(chosen["batch"]), int(chosen["warmup"])
    world.set_phase("training on data that is there")
    for _ in range(warmup):
        training_step(*batch)
    world.barrier()
    synthetic_s = world.measure_time(lambda: training_step(*batch), steps - warmup)
    places = [MEMORY, *find_storage(str(arguments["storage"]))]
    loading = load_from(world, places, int(arguments["meetings"]), training_step, chosen)
    bad = [f"{place}: {why}" for place, each in loading.items() if (why := place_problem(each))]
    return {
        "synthetic_step_s": synthetic_s,
        "batch": int(chosen["batch"]),
        "workers": int(chosen["workers"]),
        "loading": loading,
        "ok": not bad,
        "because": "; ".join(bad),
    }


def load_from(
    world: World,
    places: Sequence[str],
    meetings: int,
    training_step: Callable[[Any, Any], None],
    chosen: Mapping[str, Any],
) -> dict[str, Any]:
    """What was measured at each place; all ranks start together, also those that have no place left.

    How often they meet is the launcher's word: a rank that was asked could keep all others here for ever.
    """
    loading: dict[str, Any] = {}
    for number in range(meetings):
        place = places[number] if number < len(places) else ""
        with _prepare(world, place, chosen) as (directory, unable):
            world.set_phase(f"waiting to load from {place or 'nothing'}", collective=True)
            world.barrier()
            if place:
                found = {} if unable else measure_place(world, directory, training_step, chosen)
                loading[place] = {"unable": unable, **found}
    return loading


def find_storage(prefix: str) -> list[str]:
    """Directories whose path begins so."""
    parent, name = Path(prefix).parent, Path(prefix).name
    return sorted(str(path) for path in parent.glob(f"{name}*") if path.is_dir())


def place_problem(found: Mapping[str, Any]) -> str:
    """What is wrong with what was loaded; empty if nothing is, or nothing was loaded."""
    if found["unable"]:
        return ""
    for key, what in (
        ("wrong", "differ from what was written"),
        ("missing", "never came"),
        ("twice", "came twice"),
    ):
        if found[key]:
            return f"{found[key]} of {found['samples']} samples {what}"
    return ""


def _make_step(nn: Any, chosen: Mapping[str, Any], seed: int) -> Callable[[Any, Any], None]:
    model = models.build(nn, MODEL, chosen.get("sizes") or {}, seed)
    precision = str(chosen["precision"])
    scale = training.LOSS_SCALE if precision == "amp_fp16" else 1.0
    apply = nn.stepper(model, training.RATE / scale)

    def step(inputs: Any, labels: Any) -> None:
        with nn.computing(precision):
            loss = nn.cross_entropy(model(inputs), labels)
        (loss * scale).backward()
        apply()

    return step


@contextmanager
def _prepare(world: World, place: str, chosen: Mapping[str, Any]) -> Iterator[tuple[Path, str]]:
    """A directory with the samples, removed in the end; and the reason why there is none."""
    own, unable = Path(), ""
    with ExitStack() as stack:
        if place:
            world.set_phase(f"writing samples to {place}")
            prefix = f"{PREFIX}{socket.gethostname()}-{world.rank}"
            try:
                made = stack.enter_context(scratch.make_scratch(Path(place), prefix, NAMES))
                own, size = made.path, _picture_bytes(chosen) + NUMBER_BYTES + CHECKSUM_BYTES
                unable = storage_io.explain_no_room(Path(place), size * int(chosen["samples"]))
                if not unable:
                    write_samples(made, int(chosen["samples"]), _picture_bytes(chosen))
            except OSError as error:
                unable = f"{type(error).__name__}: {error.strerror}"
        yield own, unable


def _picture_bytes(chosen: Mapping[str, Any]) -> int:
    return 3 * int(chosen["side"]) ** 2


def write_samples(own: scratch.Scratch, count: int, picture_bytes: int) -> None:
    """Each a file: its number, a random picture, and the checksum of both."""
    for number in range(count):
        content = number.to_bytes(NUMBER_BYTES, "little") + os.urandom(picture_bytes)
        with open(own.create(NAME.format(number)), "wb") as file:  # noqa: PTH123 - a descriptor
            file.write(content + zlib.crc32(content).to_bytes(CHECKSUM_BYTES, "little"))
    os.sync()  # once: thousands of fsync take minutes, and what is not written stays in the page cache
    for number in range(count):
        file_number = os.open(NAME.format(number), os.O_RDONLY | os.O_NOFOLLOW, dir_fd=own.directory)
        os.posix_fadvise(file_number, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(file_number)


def read_sample(directory: Path, number: int) -> tuple[bytes, bool]:
    """The picture's bytes, and whether they are as they were written."""
    # Who else writes to shared storage can exchange any name there.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
    with open(os.open(directory / NAME.format(number), flags), "rb") as file:  # noqa: PTH123 - a descriptor
        content = file.read(MAX_SAMPLE)
    told, checksum = content[:-CHECKSUM_BYTES], content[-CHECKSUM_BYTES:]
    right = (
        zlib.crc32(told).to_bytes(CHECKSUM_BYTES, "little") == checksum
        and int.from_bytes(told[:NUMBER_BYTES], "little") == number
    )
    return told[NUMBER_BYTES:], right


def measure_place(
    world: World, directory: Path, training_step: Callable[[Any, Any], None], chosen: Mapping[str, Any]
) -> dict[str, Any]:
    """One epoch: seconds of a step, the part that it waited for data, and what came of the samples."""
    samples, batch, warmup = (int(chosen[key]) for key in ("samples", "batch", "warmup"))
    loader = _make_loader(directory, chosen)
    numbers, rights = [], []
    waited_s = started_at = 0.0
    world.set_phase(f"training from {directory.parent}, {samples // batch} steps")
    asked_at = time.perf_counter()
    for step, (pictures, labels, number, right) in enumerate(loader):
        if step == warmup:
            world.synchronize()
            waited_s, started_at = 0.0, time.perf_counter()
        else:
            waited_s += time.perf_counter() - asked_at
        training_step(pictures, labels)
        numbers.append(number)
        rights.append(right)
        asked_at = time.perf_counter()
    world.synchronize()
    total_s = time.perf_counter() - started_at
    return {
        "step_s": total_s / (samples // batch - warmup),
        "wait_part": min(1.0, waited_s / total_s),
        **count_samples(
            [int(each) for part in numbers for each in part.numpy().reshape(-1)],
            sum(int(each) for part in rights for each in part.numpy().reshape(-1)),
            samples,
        ),
    }


def count_samples(numbers: list[int], right: int, samples: int) -> dict[str, int]:
    """How many samples there are, are wrong, never came, and came more than once."""
    counted = Counter(numbers)
    return {
        "samples": samples,
        "wrong": len(numbers) - right,
        "missing": sum(number not in counted for number in range(samples)),
        "twice": sum(count > 1 for count in counted.values()),
    }


def _make_loader(directory: Path, chosen: Mapping[str, Any]) -> Any:
    numpy: Any = importlib.import_module("numpy")  # comes with the framework, only on nodes
    paddle: Any = importlib.import_module("paddle")
    side, samples = int(chosen["side"]), int(chosen["samples"])
    classes = int((chosen.get("sizes") or {}).get("classes", 1000))

    class Pictures(paddle.io.Dataset):  # type: ignore[misc]
        def __len__(self) -> int:
            return samples

        def __getitem__(self, number: int) -> tuple[Any, ...]:
            content, right = read_sample(directory, int(number))
            picture = numpy.frombuffer(content, dtype="uint8").reshape(3, side, side)
            scaled = (picture.astype("float32") - 127.5) / 73.6  # of uniform bytes: mean and deviation
            return scaled, numpy.int64(number % classes), numpy.int64(number), numpy.int64(right)

    return paddle.io.DataLoader(
        Pictures(),
        batch_size=int(chosen["batch"]),
        shuffle=True,
        drop_last=True,
        num_workers=int(chosen["workers"]),
        use_shared_memory=True,
    )
