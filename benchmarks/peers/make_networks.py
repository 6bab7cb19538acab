# ruff: noqa: INP001  # a script, not a package
r"""Make the networks of networks.csv that nobody publishes, with random weights.

    VENV/bin/python benchmarks/peers/make_networks.py FOLDER [NAME...]

VENV is an environment with TensorFlow, whose version decides over the bytes (2.21.0
with Keras 3.15.1 for those of networks.csv): the files are named by their SHA-256,
which is printed with the name. Random weights leave no channel constant, so that
nothing but the kernels is compared.
"""

import argparse
import hashlib
from collections.abc import Iterator
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from keras import layers

SEED = 7
DIGITS = 10


def mobilenet_v2() -> keras.Model:
    """MobileNetV2 of width 0.35, 160 x 160 x 3, 10 classes."""
    return keras.applications.MobileNetV2(
        input_shape=(160, 160, 3), alpha=0.35, weights=None, classes=10
    )


def mobilenet_v3_small() -> keras.Model:
    """The features of MobileNetV3-small of width 0.35, 96 x 96 x 3, 10 classes."""
    features = keras.applications.MobileNetV3Small(
        input_shape=(96, 96, 3),
        alpha=0.35,
        weights=None,
        include_top=False,
        include_preprocessing=False,
    )
    x = layers.GlobalAveragePooling2D()(features.output)
    return keras.Model(features.input, layers.Dense(10, activation="softmax")(x))


class DilatedConv(layers.Conv2D):
    """One CONV_2D; Keras would convert between batches and space around it."""

    def convolution_op(self, inputs: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
        dilations = [1, *self.dilation_rate, 1]
        return tf.nn.conv2d(inputs, kernel, 1, "SAME", dilations=dilations)


def temporal_convolutions() -> keras.Model:
    """Six residual blocks of dilated convolutions over 128 frames of 40 features."""
    inputs = layers.Input((1, 128, 40))
    x = layers.Conv2D(48, 1, activation="relu")(inputs)
    for dilation in (1, 2, 4, 8, 16, 32):
        wide = {"padding": "same", "dilation_rate": (1, dilation)}
        y = DilatedConv(24, (1, 3), activation="relu", **wide)(x)
        y = layers.Conv2D(48, 1)(y)
        x = layers.ReLU()(layers.Add()([x, y]))
    x = layers.GlobalAveragePooling2D()(x)
    return keras.Model(inputs, layers.Dense(12, activation="softmax")(x))


def resnet_8() -> keras.Model:
    """The ResNet of MLPerf Tiny for CIFAR-10."""
    # The shape of a whole batch of 1 makes Flatten a RESHAPE without SHAPE and PACK.
    inputs = layers.Input((32, 32, 3), batch_size=1)
    x = layers.Conv2D(16, 3, padding="same", activation="relu")(inputs)
    for channels, stride in ((16, 1), (32, 2), (64, 2)):
        y = layers.Conv2D(
            channels, 3, strides=stride, padding="same", activation="relu"
        )(x)
        y = layers.Conv2D(channels, 3, padding="same")(y)
        if stride > 1:
            x = layers.Conv2D(channels, 1, strides=stride, padding="same")(x)
        x = layers.ReLU()(layers.Add()([x, y]))
    x = layers.AveragePooling2D(8)(x)
    x = layers.Flatten()(x)
    return keras.Model(inputs, layers.Dense(10, activation="softmax")(x))


NETWORKS = {
    "mobilenet_v2_160": (mobilenet_v2, tf.int8),
    "mobilenet_v3_small_96": (mobilenet_v3_small, tf.int8),
    "tcn": (temporal_convolutions, tf.int8),
    "resnet_8_16x8": (resnet_8, tf.int16),
}


def randomize(model: keras.Model) -> None:
    """Replace all weights, those of normalizations by such as training leaves."""
    random = np.random.default_rng(SEED)
    for layer in model.layers:
        weights = layer.get_weights()
        if isinstance(layer, layers.BatchNormalization):
            shape = weights[0].shape
            scale, mean = random.uniform(0.7, 1.3, shape), random.normal(0, 0.3, shape)
            bias, variance = (
                random.normal(0, 0.3, shape),
                random.uniform(0.7, 1.3, shape),
            )
            layer.set_weights([scale, bias, mean, variance])
        elif weights:
            kernel = weights[0]
            fan_in = np.prod(kernel.shape[: 2 if "depthwise" in layer.name else -1])
            kernel = random.normal(0, np.sqrt(2 / fan_in), kernel.shape)
            biases = [random.normal(0, 0.1, bias.shape) for bias in weights[1:]]
            layer.set_weights([kernel, *biases])


def convert(model: keras.Model, kind: tf.DType) -> bytes:
    """Return the TFLite file, with activations of `kind` and weights of int8."""
    random = np.random.default_rng(SEED)

    def samples() -> Iterator[list[np.ndarray]]:
        for _ in range(16):
            yield [random.uniform(-1, 1, (1, *model.input.shape[1:])).astype("float32")]

    converter = tf.lite.TFLiteConverter.from_keras_model(model)
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.representative_dataset = samples
    sets = tf.lite.OpsSet
    of_int16 = sets.EXPERIMENTAL_TFLITE_BUILTINS_ACTIVATIONS_INT16_WEIGHTS_INT8
    is_int8 = kind == tf.int8
    # CMSIS-NN has no fully connected layer of int16 with a scale for each output.
    converter._experimental_disable_per_channel_quantization_for_dense_layers = (
        not is_int8
    )
    converter.target_spec.supported_ops = [
        sets.TFLITE_BUILTINS_INT8 if is_int8 else of_int16
    ]
    converter.inference_input_type = converter.inference_output_type = kind
    return bytes(converter.convert())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", choices=[[], *NETWORKS])
    args = parser.parse_args()
    for name in args.names or NETWORKS:
        make, kind = NETWORKS[name]
        keras.utils.clear_session()  # names of layers begin anew
        keras.utils.set_random_seed(SEED)
        model = make()
        randomize(model)
        data = convert(model, kind)
        sha256 = hashlib.sha256(data).hexdigest()
        (args.folder / f"{sha256[:DIGITS]}.tflite").write_bytes(data)
        print(f"{name},{sha256},benchmarks/peers/make_networks.py", len(data))


if __name__ == "__main__":
    main()
