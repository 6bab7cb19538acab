"""Train the digits example; write two TFLite files, the held-out set and the figures.

The data are scikit-learn's bundled 8x8 handwritten digits (1797 images, no download).
The script writes, next to this file: digits.tflite (int8 in, int8 out),
digits_float.tflite (the same network, float32), digits_test.npz (the held-out images as
int8 tensors under the key `input_1`, for `firmwright run --input`), digits_labels.npy
(their classes) and accuracy.json.

All seeds are fixed and one thread computes, so a second run with the same versions
gives the same network. Training and calibration do not use the held-out fifth.

Needs the extra `examples` (TensorFlow and scikit-learn):  pip install -e '.[examples]'
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import sklearn
import tensorflow as tf
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from tensorflow.lite.tools import flatbuffer_utils

SEED = 7
PIXEL_MAX = 16.0  # the data set counts ink in steps 0..16
HELD_OUT_SHARE = 0.2
CALIBRATION_IMAGES = 400


@dataclass(frozen=True, slots=True)
class Split:
    """Images as float32 [n, 8, 8, 1] in 0..1, classes as int64 [n]."""

    train_images: np.ndarray
    train_labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray


def load_split() -> Split:
    """Return the same stratified four fifths and one fifth every time."""
    digits = load_digits()
    images = (digits.images / PIXEL_MAX).astype(np.float32)[..., np.newaxis]
    parts = train_test_split(
        images,
        digits.target,
        test_size=HELD_OUT_SHARE,
        random_state=SEED,
        stratify=digits.target,
    )
    return Split(
        train_images=parts[0],
        train_labels=parts[2],
        test_images=parts[1],
        test_labels=parts[3],
    )


def build_network(batch: int | None = None) -> tf.keras.Model:
    """Convolution, two separable blocks, pooling, dense layer: about 3,600 weights."""
    layers = tf.keras.layers
    inputs = tf.keras.Input(shape=(8, 8, 1), batch_size=batch, name="image")
    x = layers.Conv2D(16, 3, padding="same", use_bias=False)(inputs)
    x = layers.ReLU()(layers.BatchNormalization()(x))
    for channels in (32, 32):
        x = layers.DepthwiseConv2D(3, padding="same", use_bias=False)(x)
        x = layers.ReLU()(layers.BatchNormalization()(x))
        x = layers.Conv2D(channels, 1, use_bias=False)(x)
        x = layers.ReLU()(layers.BatchNormalization()(x))
        x = layers.MaxPooling2D(2)(x)
    x = layers.Dropout(0.2)(layers.Flatten()(x))
    return tf.keras.Model(
        inputs, layers.Dense(10, activation="softmax", name="digit")(x)
    )


def augment(images: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Shift each image by at most one pixel in each direction and add some noise."""
    padded = np.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)))
    rows, columns = rng.choice(3, size=(2, len(images)), p=(0.15, 0.7, 0.15))
    moved = np.stack(
        [
            image[row : row + 8, column : column + 8]
            for image, row, column in zip(padded, rows, columns, strict=True)
        ]
    )
    noise = rng.normal(0.0, 0.02, size=moved.shape)
    return np.clip(moved + noise, 0.0, 1.0).astype(np.float32)


def train(network: tf.keras.Model, split: Split, epochs: int) -> None:
    """Train with Adam, a cosine-decayed rate and fresh augmentation in each epoch."""
    batch = 32
    steps = epochs * (-(-len(split.train_images) // batch))
    rate = tf.keras.optimizers.schedules.CosineDecay(4e-3, steps)
    network.compile(
        optimizer=tf.keras.optimizers.Adam(rate), loss="sparse_categorical_crossentropy"
    )
    rng = np.random.default_rng(SEED)
    for _ in range(epochs):
        network.fit(
            augment(split.train_images, rng),
            split.train_labels,
            batch_size=batch,
            verbose=0,
        )


def convert(network: tf.keras.Model, calibration: np.ndarray | None) -> bytes:
    """Convert to TFLite of batch 1: int8 with calibration images, otherwise float32."""
    single = build_network(batch=1)
    single.set_weights(network.get_weights())
    converter = tf.lite.TFLiteConverter.from_keras_model(single)
    if calibration is not None:

        def representative() -> Iterator[list[np.ndarray]]:
            for image in calibration:
                yield [image[np.newaxis]]

        converter.optimizations = [tf.lite.Optimize.DEFAULT]
        converter.representative_dataset = representative
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
        converter.inference_input_type = tf.int8
        converter.inference_output_type = tf.int8
        # One scale for the dense layer's weights, as every runtime supports it.
        converter._experimental_disable_per_channel_quantization_for_dense_layers = True
    return with_short_names(converter.convert())


def with_short_names(model: bytes) -> bytes:
    """Rename the tensors: image, conv_2d_1, conv_2d_1/weights, digit."""
    content = flatbuffer_utils.convert_bytearray_to_object(bytearray(model))
    graph = content.subgraphs[0]
    seen: Counter[str] = Counter()
    for operator in graph.operators:
        code = content.operatorCodes[operator.opcodeIndex].builtinCode
        kind = flatbuffer_utils.opcode_to_name(content, operator.opcodeIndex) or str(
            code
        )
        seen[kind] += 1
        name = f"{kind.lower()}_{seen[kind]}"
        graph.tensors[operator.outputs[0]].name = name
        for tensor, role in zip(operator.inputs[1:], ("weights", "bias"), strict=False):
            graph.tensors[tensor].name = (
                f"{name}/{role}" if kind != "RESHAPE" else f"{name}/shape"
            )
    graph.tensors[graph.inputs[0]].name = "image"
    graph.tensors[graph.outputs[0]].name = "digit"
    return bytes(flatbuffer_utils.convert_object_to_bytearray(content))


def reference_interpreter(model: bytes) -> tf.lite.Interpreter:
    """Return an interpreter with the reference kernels.

    The firmware equals its results bit for bit.
    """
    interpreter = tf.lite.Interpreter(
        model_content=model,
        experimental_op_resolver_type=tf.lite.experimental.OpResolverType.BUILTIN_REF,
    )
    interpreter.allocate_tensors()
    return interpreter


def quantize_images(images: np.ndarray, scale: float, zero_point: int) -> np.ndarray:
    """Quantize float images in 0..1 to the model's int8 input."""
    return np.clip(np.round(images / scale) + zero_point, -128, 127).astype(np.int8)


def accuracy(
    interpreter: tf.lite.Interpreter, images: np.ndarray, labels: np.ndarray
) -> float:
    """Return the share of images whose largest output is their class."""
    source = interpreter.get_input_details()[0]["index"]
    result = interpreter.get_output_details()[0]["index"]
    right = 0
    for image, label in zip(images, labels, strict=True):
        interpreter.set_tensor(source, image[np.newaxis])
        interpreter.invoke()
        right += int(np.argmax(interpreter.get_tensor(result)) == label)
    return right / len(labels)


def main() -> None:
    """Train, convert, measure and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--output", type=Path, default=Path(__file__).resolve().parent)
    options = parser.parse_args()

    tf.keras.utils.set_random_seed(SEED)
    tf.config.experimental.enable_op_determinism()
    tf.config.threading.set_inter_op_parallelism_threads(1)
    tf.config.threading.set_intra_op_parallelism_threads(1)

    split = load_split()
    network = build_network()
    train(network, split, options.epochs)
    float_model = convert(network, None)
    int8_model = convert(network, split.train_images[:CALIBRATION_IMAGES])

    quantized = reference_interpreter(int8_model)
    scale, zero_point = quantized.get_input_details()[0]["quantization"]
    test_int8 = quantize_images(split.test_images, scale, zero_point)
    figures = {
        "held_out_images": len(split.test_labels),
        "accuracy_float32": accuracy(
            reference_interpreter(float_model), split.test_images, split.test_labels
        ),
        "accuracy_int8": accuracy(quantized, test_int8, split.test_labels),
        "weights": int(network.count_params()),
        "epochs": options.epochs,
        "seed": SEED,
        "tensorflow": tf.__version__,
        "scikit_learn": sklearn.__version__,
    }
    output = options.output
    (output / "digits.tflite").write_bytes(int8_model)
    (output / "digits_float.tflite").write_bytes(float_model)
    # One leading axis more than the tensor: many samples.
    np.savez_compressed(output / "digits_test.npz", input_1=test_int8[:, np.newaxis])
    np.save(output / "digits_labels.npy", split.test_labels.astype(np.uint8))
    (output / "accuracy.json").write_text(
        json.dumps(figures, indent=2) + "\n", encoding="utf-8"
    )
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
