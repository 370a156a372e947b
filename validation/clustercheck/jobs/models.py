"""The models for training and inference, independent of the framework.

``nn`` is a framework of `frameworks/`: layers to build with and functions to compute with. ResNet-50 is that
of He et al. (CVPR 2016) with the stride in the 3x3 convolution, as torchvision has it; BERT that of Devlin
et al. (NAACL 2019) with a classifier on the first token, as SuperBench trains it. The two of OCR have the
shapes of PP-OCR's (Du et al., 2020): separable convolutions, and a head that upsamples or reads columns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any


def resnet(nn: Any, *, width: int = 64, blocks: Sequence[int] = (3, 4, 6, 3), classes: int = 1000) -> Any:
    """ResNet-50 by default. Input: (batch, 3, height, width) of floats; output: (batch, classes)."""

    class Bottleneck(nn.Module):  # type: ignore[misc]
        def __init__(self, inner: int, given: int, stride: int) -> None:
            super().__init__()
            out = 4 * inner
            self.narrow = nn.sequential(nn.conv(given, inner, 1), nn.norm(inner))
            self.spatial = nn.sequential(nn.conv(inner, inner, 3, stride), nn.norm(inner))
            self.widen = nn.sequential(nn.conv(inner, out, 1), nn.norm(out))
            changes = stride != 1 or given != out
            self.shortcut = nn.sequential(nn.conv(given, out, 1, stride), nn.norm(out)) if changes else None

        def forward(self, x: Any) -> Any:
            y = self.widen(nn.relu(self.spatial(nn.relu(self.narrow(x)))))
            return nn.relu(y + (x if self.shortcut is None else self.shortcut(x)))

    class ResNet(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.sequential(nn.conv(3, width, 7, 2), nn.norm(width))
            layers, given = [], width
            for stage, count in enumerate(blocks):
                for number in range(count):
                    stride = 2 if stage and not number else 1
                    layers.append(Bottleneck(width << stage, given, stride))
                    given = 4 * (width << stage)
            self.stages = nn.sequential(*layers)
            self.classifier = nn.linear(given, classes)

        def forward(self, x: Any) -> Any:
            x = self.stages(nn.max_pool(nn.relu(self.stem(x))))
            return self.classifier(x.mean((2, 3)))

    return ResNet()


def bert(
    nn: Any,
    *,
    layers: int = 12,
    hidden: int = 768,
    heads: int = 12,
    vocabulary: int = 30522,
    positions: int = 512,
    classes: int = 100,
) -> Any:
    """BERT-base by default, without dropout. Input: (batch, length) of integers; output: (batch, classes)."""

    class Layer(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.qkv, self.out = nn.linear(hidden, 3 * hidden), nn.linear(hidden, hidden)
            self.wide, self.narrow = nn.linear(hidden, 4 * hidden), nn.linear(4 * hidden, hidden)
            self.after_attention, self.after_all = nn.layer_norm(hidden), nn.layer_norm(hidden)

        def forward(self, x: Any) -> Any:
            batch, length, each = x.shape[0], x.shape[1], hidden // heads
            split = nn.transpose(self.qkv(x).reshape([batch, length, 3, heads, each]), (2, 0, 3, 1, 4))
            query, key, value = split[0], split[1], split[2]
            weights = nn.softmax(nn.matmul(query * each**-0.5, nn.transpose(key, (0, 1, 3, 2))))
            mixed = nn.transpose(nn.matmul(weights, value), (0, 2, 1, 3)).reshape([batch, length, hidden])
            x = self.after_attention(x + self.out(mixed))
            return self.after_all(x + self.narrow(nn.gelu(self.wide(x))))

    class Bert(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.words, self.places = nn.embedding(vocabulary, hidden), nn.embedding(positions, hidden)
            self.after_embedding = nn.layer_norm(hidden)
            self.layers = nn.sequential(*(Layer() for _ in range(layers)))
            self.pooler, self.classifier = nn.linear(hidden, hidden), nn.linear(hidden, classes)

        def forward(self, words: Any) -> Any:
            x = self.words(words) + self.places(nn.counted(words.shape[1]))
            x = self.layers(self.after_embedding(x))
            return self.classifier(nn.tanh(self.pooler(x[:, 0])))

    return Bert()


def _separable(nn: Any, given: int, out: int, stride: Any) -> Any:
    return nn.sequential(
        nn.conv(given, given, 3, stride, given),
        nn.norm(given),
        nn.activation(),
        nn.conv(given, out, 1),
        nn.norm(out),
        nn.activation(),
    )


def ocr_detection(nn: Any, *, width: int = 16) -> Any:
    """Text locations, in four scales. Input: (batch, 3, 32 i, 32 j); output: (batch, 1, 8 i, 8 j)."""

    class Detection(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            inner = 4 * width
            self.stem = nn.sequential(nn.conv(3, width, 3, 2), nn.norm(width), nn.activation())
            self.stages = nn.module_list(
                nn.sequential(
                    _separable(nn, width << n, width << (n + 1), 2),
                    _separable(nn, width << (n + 1), width << (n + 1), 1),
                )
                for n in range(4)
            )
            self.lateral = nn.module_list(nn.conv(width << (n + 1), inner, 1) for n in range(4))
            self.head = nn.sequential(
                nn.conv(inner, inner, 3), nn.norm(inner), nn.activation(), nn.conv(inner, 1, 1)
            )

        def forward(self, x: Any) -> Any:
            x, scales = self.stem(x), []
            for stage, lateral in zip(self.stages, self.lateral):
                x = stage(x)
                scales.append(lateral(x))
            whole = scales.pop()
            while scales:
                whole = nn.upsample(whole) + scales.pop()
            return nn.sigmoid(self.head(whole))

    return Detection()


def ocr_recognition(nn: Any, *, width: int = 32, classes: int = 6625) -> Any:
    """The text of a line, by columns. Input: (batch, 3, 48, w); output: (batch, w/8, classes)."""

    class Recognition(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            strides = ((2, 2), (2, 2), (2, 1), (2, 1))
            self.stem = nn.sequential(nn.conv(3, width, 3, 2), nn.norm(width), nn.activation())
            self.stages = nn.sequential(
                *(_separable(nn, width << n, width << (n + 1), stride) for n, stride in enumerate(strides))
            )
            self.classifier = nn.linear(width << len(strides), classes)

        def forward(self, x: Any) -> Any:
            columns = self.stages(self.stem(x)).mean(2)
            return nn.softmax(self.classifier(nn.transpose(columns, (0, 2, 1))))

    return Recognition()


BUILDERS: Mapping[str, Callable[..., Any]] = {
    "resnet50": resnet,
    "bert_base": bert,
    "ocr_det": ocr_detection,
    "ocr_rec": ocr_recognition,
}


def build(nn: Any, name: str, sizes: Mapping[str, Any], seed: int) -> Any:
    """The model of this name, its parameters drawn on the host: the same in each framework, on all ranks."""
    model = BUILDERS[name](nn, **sizes)
    nn.initialise(model, seed)
    return model
