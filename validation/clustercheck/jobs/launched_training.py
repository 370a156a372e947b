"""A training as a user writes it: Paddle alone, started by ``paddle.distributed.launch``.

``launched_training.py DIRECTORY SAMPLES BATCH EPOCHS SEED``: each process writes what it trained on to
DIRECTORY/trainer-RANK.json. Nothing of ours is imported.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Any

FEATURES = 32


def make_dataset(paddle: Any, numpy: Any, samples: int, seed: int) -> Any:
    """Points and a function of them, with the number of each."""
    points = numpy.random.RandomState(seed).standard_normal((samples, FEATURES)).astype("float32")
    targets = numpy.sin(points.sum(axis=1, keepdims=True) / 8).astype("float32")

    class Points(paddle.io.Dataset):  # type: ignore[misc]
        def __len__(self) -> int:
            return samples

        def __getitem__(self, number: int) -> tuple[Any, ...]:
            return points[number], targets[number], numpy.int64(number)

    return Points()


def main(directory: Path, samples: int, batch: int, epochs: int, seed: int) -> None:
    """Train, and write what was seen."""
    import numpy  # noqa: PLC0415
    import paddle  # noqa: PLC0415

    paddle.distributed.init_parallel_env()
    rank, world = paddle.distributed.get_rank(), paddle.distributed.get_world_size()
    paddle.seed(seed)
    model = paddle.nn.Sequential(paddle.nn.Linear(FEATURES, 64), paddle.nn.Tanh(), paddle.nn.Linear(64, 1))
    parallel = paddle.DataParallel(model) if world > 1 else model
    optimizer = paddle.optimizer.Momentum(0.05, momentum=0.9, parameters=model.parameters())
    dataset = make_dataset(paddle, numpy, samples, seed + 1)
    sampler = paddle.io.DistributedBatchSampler(dataset, batch_size=batch, shuffle=True)
    loader = paddle.io.DataLoader(dataset, batch_sampler=sampler, num_workers=2)
    seen, losses = [], []
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        numbers: list[int] = []
        total = 0.0
        for points, targets, number in loader:
            loss = paddle.nn.functional.mse_loss(parallel(points), targets)
            loss.backward()
            optimizer.step()
            optimizer.clear_grad()
            numbers += [int(each) for each in number.numpy().reshape(-1)]
            total += float(loss) * len(number)
        seen.append(numbers)
        losses.append(total / len(numbers))
    flat = paddle.concat([parameter.detach().flatten() for parameter in model.parameters()])
    found = {
        "rank": rank,
        "world": world,
        "device": str(paddle.device.get_device()),
        "seen": seen,
        "losses": losses,
        "parameters_sha256": hashlib.sha256(flat.astype("float32").numpy().tobytes()).hexdigest(),
    }
    (directory / f"trainer-{rank}.json").write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *(int(word) for word in sys.argv[2:]))
    sys.stdout.flush()
    os._exit(0)  # the collective library's destructors may wait for peers that are gone
