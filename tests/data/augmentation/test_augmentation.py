"""Each augmentation against a version of one image at a time, in plain Python, with the same random numbers."""

import colorsys
import math

import numpy as np
import pytest
import torch
from scipy import stats

from d3ray.data import seeds
from d3ray.data.augmentation import (
    NAMES,
    AugmentationPipeline,
    Augmentations,
    AugmentedSource,
    ColorJitter,
    Cutout,
    HorizontalFlip,
    Intensity,
    MultipleAmplitudeScaling,
    RandomRotation,
    RandomShift,
    SingleAmplitudeScaling,
    VerticalFlip,
)
from d3ray.data.batch import Batch
from d3ray.data.config import Config
from d3ray.data.errors import ConfigError, DataError
from d3ray.data.random import fold, root_key
from d3ray.data.spec import Box, Dict

SEED = 11
B, C, H, W = 7, 6, 9, 12


# ---- one image at a time


class Numbers:
    """The random numbers of a key, from the plain integers of `seeds`: a hash of (key, name, position)."""

    def __init__(self, key: int) -> None:
        self.key = key

    def uniform(self, name, at, low=0.0, high=1.0):
        drawn = seeds.integers(seeds.fold(self.key, name), at + 1, 1 << 63)[at]  # the upper 63 bits
        return low + (high - low) * ((drawn >> 10) + 0.5) * 2.0**-53

    def normal(self, name, at, count):
        half = (count + 1) // 2
        u, v = self.uniform(name, at % half), self.uniform(name, half + at % half)
        return math.sqrt(-2 * math.log(u)) * (math.cos if at < half else math.sin)(2 * math.pi * v)


def shift_one(a: RandomShift, image, numbers, at, count):
    s = a.shift_size
    down, right = (int(numbers.uniform(axis, at) * (2 * s + 1)) - s for axis in ("down", "right"))
    padded = np.pad(image, ((0, 0), (s, s), (s, s)), mode="edge")
    return padded[:, s - down : s - down + image.shape[1], s - right : s - right + image.shape[2]]


def cutout_one(a: Cutout, image, numbers, at, count):
    image = image.copy()
    _, height, width = image.shape
    area = numbers.uniform("area", at, 0.02, 0.33) * height * width
    ratio = math.exp(numbers.uniform("ratio", at, math.log(0.3), -math.log(0.3)))
    h, w = (min(max(round(math.sqrt(x)), 1), size) for x, size in ((area * ratio, height), (area / ratio, width)))
    top, left = int(numbers.uniform("down", at) * (height - h + 1)), int(numbers.uniform("right", at) * (width - w + 1))
    if numbers.uniform("chosen", at) < a.probability:
        for i in range(top, top + h):
            for j in range(left, left + w):
                image[:, i, j] = 0
    return image


def flip_one(a: HorizontalFlip | VerticalFlip, image, numbers, at, count):
    if numbers.uniform("chosen", at) >= a.probability:
        return image
    return image[:, :, ::-1] if isinstance(a, HorizontalFlip) else image[:, ::-1]


def rotate_one(a: RandomRotation, image, numbers, at, count):
    _, height, width = image.shape
    angle = math.radians(numbers.uniform("angle", at, -a.degree, a.degree))
    turned = np.zeros_like(image)
    for i in range(height):
        for j in range(width):
            y, x = i - (height - 1) / 2, j - (width - 1) / 2
            row = math.sin(angle) * x + math.cos(angle) * y + (height - 1) / 2
            column = math.cos(angle) * x - math.sin(angle) * y + (width - 1) / 2
            for r in (math.floor(row), math.floor(row) + 1):
                for c in (math.floor(column), math.floor(column) + 1):
                    if 0 <= r < height and 0 <= c < width:
                        turned[:, i, j] += (1 - abs(row - r)) * (1 - abs(column - c)) * image[:, r, c]
    return turned


def intensity_one(a: Intensity, image, numbers, at, count):
    return image * (1 + a.scale * min(max(numbers.normal("factor", at, count), -2), 2))


def clipped(x):
    return min(max(x, 0.0), 1.0)


def jitter_one(a: ColorJitter, image, numbers, at, count):
    draw = {name: numbers.uniform(name, at, *getattr(a, name)) for name in ("contrast", "hue", "saturation", "brightness")}

    def contrast(frame):
        return np.clip((frame - frame.mean((1, 2), keepdims=True)) * draw["contrast"] + frame.mean((1, 2), keepdims=True), 0, 1)

    def color(frame):
        changed = np.empty_like(frame)
        for i in range(frame.shape[1]):
            for j in range(frame.shape[2]):
                h, s, v = colorsys.rgb_to_hsv(*frame[:, i, j])
                h, s, v = (h + draw["hue"]) % 1, clipped(s * draw["saturation"]), clipped(v * draw["brightness"])
                changed[:, i, j] = colorsys.hsv_to_rgb(h, s, v)
        return changed

    frames = [image[k : k + 3] for k in range(0, len(image), 3)]
    early = numbers.uniform("order", at) < 0.5
    return np.concatenate([color(contrast(frame)) if early else contrast(color(frame)) for frame in frames])


def single_one(a: SingleAmplitudeScaling, vector, numbers, at, count):
    return vector * numbers.uniform("factor", at, a.minimum, a.maximum)


def multiple_one(a: MultipleAmplitudeScaling, vector, numbers, at, count):
    size = len(vector)
    return np.array([x * numbers.uniform("factor", at * size + d, a.minimum, a.maximum) for d, x in enumerate(vector)])


IMAGE = [
    (RandomShift(), shift_one),
    (RandomShift(shift_size=20), shift_one),  # more than the image is wide
    (Cutout(), cutout_one),
    (HorizontalFlip(probability=0.5), flip_one),
    (VerticalFlip(probability=0.5), flip_one),
    (RandomRotation(), rotate_one),
    (RandomRotation(degree=120.0), rotate_one),
    (Intensity(), intensity_one),
    (ColorJitter(), jitter_one),
]
VECTOR = [(SingleAmplitudeScaling(), single_one), (MultipleAmplitudeScaling(minimum=-1.0), multiple_one)]


def images(dtype=np.float64, shape=(B, C, H, W)):
    drawn = np.random.default_rng(5).integers(0, 256, shape)
    return (drawn / 255).astype(dtype) if np.dtype(dtype).kind == "f" else drawn.astype(dtype)


def one_by_one(augmentation, reference, x, key):
    return np.stack([reference(augmentation, sample, Numbers(key), at, len(x)) for at, sample in enumerate(x)])


def ids(cases):
    return [f"{augmentation.label}-{k}" for k, (augmentation, _) in enumerate(cases)]


@pytest.mark.parametrize(("augmentation", "reference"), IMAGE, ids=ids(IMAGE))
def test_images_one_by_one(augmentation, reference):
    x = images()
    expected = one_by_one(augmentation, reference, x, seeds.root_key(SEED))
    np.testing.assert_allclose(augmentation.transform(torch.from_numpy(x), SEED).numpy(), expected, rtol=0, atol=1e-12)
    assert np.abs(expected - x).reshape(B, -1).max(1).min() > 0 or hasattr(augmentation, "probability")


@pytest.mark.parametrize(("augmentation", "reference"), IMAGE, ids=ids(IMAGE))
def test_bytes_are_what_floats_are_rounded(augmentation, reference):
    x = images(np.uint8)
    expected = one_by_one(augmentation, reference, x / 255, seeds.root_key(SEED)) * 255
    found = augmentation.transform(torch.from_numpy(x), SEED)
    assert found.dtype == torch.uint8
    np.testing.assert_allclose(
        found.numpy(), np.clip(expected, 0, 255), rtol=0, atol=0.501
    )  # float32 may round a half the other way


@pytest.mark.parametrize(("augmentation", "reference"), VECTOR, ids=ids(VECTOR))
def test_vectors_one_by_one(augmentation, reference):
    x = np.random.default_rng(5).normal(size=(B, 4))
    expected = one_by_one(augmentation, reference, x, seeds.root_key(SEED))
    np.testing.assert_allclose(augmentation.transform(torch.from_numpy(x), SEED).numpy(), expected, rtol=1e-14)


@pytest.mark.parametrize("augmentation", [a for a, _ in IMAGE], ids=ids(IMAGE))
def test_channels_last_is_the_same(augmentation):
    x = torch.from_numpy(images())
    last = augmentation.transform(x.movedim(1, -1), SEED, channels="last")
    torch.testing.assert_close(last.movedim(-1, 1), augmentation.transform(x, SEED), rtol=0, atol=1e-15)


@pytest.mark.parametrize("augmentation", [a for a, _ in IMAGE], ids=ids(IMAGE))
def test_frames_of_a_sample_are_changed_alike(augmentation):
    frame = torch.from_numpy(images(shape=(B, 3, H, W)))
    stacked = augmentation.transform(frame.repeat(1, 4, 1, 1), SEED)
    for part in stacked.split(3, 1):
        torch.testing.assert_close(part, augmentation.transform(frame, SEED), rtol=0, atol=1e-15)
    apart = augmentation.transform(frame[:, None].repeat(1, 4, 1, 1, 1), SEED)  # with an axis of frames
    torch.testing.assert_close(apart.reshape(stacked.shape), stacked, rtol=0, atol=0)


def test_frames_of_a_vector_are_scaled_alike():
    x = torch.ones(B, 5, 4, dtype=torch.float64)
    for augmentation, _ in VECTOR:
        changed = augmentation.transform(x, SEED)
        assert torch.equal(changed, changed[:, :1].expand_as(changed))
        assert len(changed[:, 0].unique()) == (B if augmentation.label.startswith("single") else 4 * B)


@pytest.mark.parametrize("augmentation", [a for a, _ in IMAGE + VECTOR], ids=ids(IMAGE + VECTOR))
def test_a_stacked_seed_sees_what_it_sees_alone(augmentation):
    x = torch.from_numpy(images(np.float32, (3, B, 3, H, W)))
    x = x if augmentation.wants == "images" else x[..., 0, 0]
    keys = torch.stack([root_key(seed) for seed in (4, 8, 2)])
    together = augmentation.transform(x, keys)
    for k, seed in enumerate((4, 8, 2)):
        assert torch.equal(together[k], augmentation.transform(x[k], seed))
    assert not torch.equal(augmentation.transform(x[0], 4), augmentation.transform(x[0], 8))


@pytest.mark.parametrize("augmentation", [a for a, _ in IMAGE + VECTOR], ids=ids(IMAGE + VECTOR))
def test_no_value_is_read(augmentation):
    """Meta tensors have no values, so nothing waits for a device, and nothing is made on another one."""
    x = torch.empty(3, B, 3, H, W, device="meta") if augmentation.wants == "images" else torch.empty(3, B, 4, device="meta")
    changed = augmentation.transform(x, torch.empty(3, dtype=torch.int64, device="meta"))
    assert changed.is_meta
    assert changed.shape == x.shape


def test_what_does_nothing_changes_nothing():
    x = torch.from_numpy(images())
    still = [
        RandomShift(shift_size=0),
        Cutout(probability=0.0),
        HorizontalFlip(probability=0.0),
        VerticalFlip(probability=0.0),
        RandomRotation(degree=0.0),
        Intensity(scale=0.0),
        ColorJitter(brightness=(1, 1), contrast=(1, 1), saturation=(1, 1), hue=(0, 0)),
    ]
    for augmentation in still:
        torch.testing.assert_close(augmentation.transform(x), x, rtol=0, atol=1e-14)


def test_shifts_are_uniform_and_probabilities_are_kept():
    n = 8000
    ramp = torch.arange(21.0).expand(n, 1, 21, 21)  # column j holds j: the middle tells the shift
    moved = RandomShift().transform(ramp, 3)[:, 0, 10, 10] - 10
    assert stats.chisquare(np.bincount(moved.long() + 4, minlength=9)).pvalue > 0.001
    flipped = (HorizontalFlip().transform(ramp, 3)[:, 0, 0, 0] > 0).float().mean()
    cut = (Cutout().transform(ramp + 1, 3) == 0).flatten(1)
    assert float(flipped) == pytest.approx(0.1, abs=0.011)
    assert float(cut.any(1).float().mean()) == pytest.approx(0.5, abs=0.018)
    share = cut.float().mean(1)[cut.any(1)]
    assert 0.01 < float(share.min()) < 0.04
    assert 0.3 < float(share.max()) < 0.36


# ---- as settings


class Holder(Config):
    augmentation: Augmentations = ()


def test_names_settings_and_objects_make_a_pipeline():
    given = ["random_shift", {"name": "intensity", "scale": 0.2}, Cutout(probability=1.0)]
    found = Holder.checked({"augmentation": given}).augmentation
    assert found == (RandomShift(shift_size=4), Intensity(scale=0.2), Cutout(probability=1.0))
    pipeline = AugmentationPipeline(augmentations=found)
    assert pipeline.get_augmentation_types() == ["random_shift", "intensity", "cutout"]
    assert pipeline.get_augmentation_params()[1] == {"scale": 0.2}
    assert Holder.checked({"augmentation": pipeline}).augmentation == found
    assert Holder.model_validate_json(Holder(augmentation=found).model_dump_json()).augmentation == found
    assert Holder.checked({"augmentation": "cutout"}).augmentation == (Cutout(),)
    assert [Holder.checked({"augmentation": name}).augmentation[0].get_type() for name in NAMES] == list(NAMES)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (["random_shft"], "there is no such augmentation; did you mean 'random_shift'?"),
        ([{"name": "cutout", "probability": 2}], "input should be less than or equal to 1"),
        ([{"name": "color_jitter", "contrast": [2, 1]}], r"contrast is \(2, 1\), which is no range"),
        ([{"name": "single_amplitude_scaling", "minimum": 2}], "minimum is 2 and must not be more than maximum, which is 1.2"),
    ],
)
def test_wrong_settings_are_explained(given, sentence):
    with pytest.raises(ConfigError, match=sentence):
        Holder.checked({"augmentation": given})


def test_a_pipeline_is_its_augmentations_one_after_the_other_each_with_a_key_of_its_own():
    x = torch.from_numpy(images())
    pipeline = AugmentationPipeline(augmentations=["random_shift", "intensity"])
    by_hand = Intensity().transform(RandomShift().transform(x, fold(root_key(3), 0)), fold(root_key(3), 1))
    assert torch.equal(pipeline.transform(x, 3), by_hand)


def test_observations_of_another_kind_are_refused():
    vector, image = Box(shape=(4,)), Box(shape=(3, 8, 8), dtype="uint8")
    shift = AugmentationPipeline(augmentations=["random_shift"])
    with pytest.raises(DataError, match="'random_shift' needs images, and observations of 'there' have none"):
        shift.check_space(vector, "there")
    shift.check_space(Dict(spaces={"seen": image, "felt": vector}), "there")
    with pytest.raises(DataError, match="needs batches of images, and this is"):
        RandomShift().transform(torch.zeros(4, 8))
    with pytest.raises(DataError, match="needs RGB images, and these have 4 channels"):
        ColorJitter().transform(torch.zeros(2, 4, 8, 8))


# ---- as a source


class Fixed:
    """The same batch at every step."""

    def __init__(self, observation, following):
        n = 6
        self.batch = Batch(observation, torch.arange(n), torch.arange(n) * 1.0, following, torch.ones(n), torch.arange(n))
        self.epochs = []

    def sample(self, step):
        return self.batch

    def between_epochs(self, epoch):
        self.epochs.append(epoch)


def source(space, observation, copies=1, names=("multiple_amplitude_scaling",), **options):
    fixed = Fixed(observation, observation)
    return AugmentedSource(fixed, AugmentationPipeline(augmentations=names), 5, space, copies=copies, **options)


def test_observation_and_next_observation_draw_for_themselves_by_step():
    x = torch.rand(6, 4)
    made = source(Box(shape=(4,)), x)
    first, second = made.sample(0), made.sample(1)
    assert not torch.equal(first.observation, first.next_observation)
    assert not torch.equal(first.observation, second.observation)
    assert torch.equal(source(Box(shape=(4,)), x).sample(1).observation, second.observation)  # whatever was drawn before
    assert torch.equal(source(Box(shape=(4,)), x, following=False).sample(0).next_observation, x)
    made.between_epochs(3)
    assert made.source.epochs == [3]


def test_copies_stand_one_after_the_other_and_each_is_augmented_for_itself():
    x = torch.rand(6, 4)
    batch = source(Box(shape=(4,)), x, copies=3).sample(7)
    assert batch.observation.shape == (18, 4)
    assert torch.equal(batch.action, torch.arange(6).repeat(3))
    assert torch.equal(batch.index, torch.arange(6).repeat(3))
    ratio = (batch.observation / x.repeat(3, 1)).reshape(3, 6, 4)
    assert len(ratio.unique()) == 72
    assert torch.equal(batch.observation[:6], source(Box(shape=(4,)), x).sample(7).observation)  # the first is that of n = 1


def test_a_prioritised_source_is_told_the_mean_error_of_the_copies():
    x = torch.rand(6, 4)
    plain, copied = source(Box(shape=(4,)), x), source(Box(shape=(4,)), x, copies=3)
    assert plain.update is None  # the source keeps no priorities
    told = []
    copied.source.update = plain.source.update = lambda index, errors: told.append((index.tolist(), errors.tolist()))
    plain.update(torch.arange(6), torch.ones(6))
    batch = copied.sample(0)
    copied.update(batch.index, torch.arange(18.0))
    assert told == [(list(range(6)), [1.0] * 6), (list(range(6)), [6.0, 7.0, 8.0, 9.0, 10.0, 11.0])]


def test_each_key_of_a_dict_is_changed_by_what_suits_it():
    space = Dict(spaces={"seen": Box(shape=(3, 8, 8), dtype="uint8"), "felt": Box(shape=(4,)), "grid": Box(shape=(4, 4))})
    x = {"seen": torch.rand(6, 3, 8, 8), "felt": torch.rand(6, 4), "grid": torch.rand(6, 4, 4)}
    names = ("intensity", "single_amplitude_scaling")
    found = source(space, x, names=names, scaled=frozenset(["observation/seen"])).sample(0).observation
    factor = found["seen"] / x["seen"]
    torch.testing.assert_close(factor, factor[:, :1, :1, :1].expand_as(factor))
    assert (found["felt"] / x["felt"]).std() > 0.01
    assert torch.equal(found["grid"], x["grid"])


def test_colours_of_unscaled_bytes_reach_255():
    """A sampler gives bytes as floats; white is then 255, and 1 once the pixel scaler has acted."""
    space, x = Box(shape=(3, 8, 8), dtype="uint8"), torch.rand(6, 3, 8, 8)
    small = source(space, x, names=("color_jitter",), scaled=frozenset(["observation"])).sample(0).observation
    large = source(space, x * 255, names=("color_jitter",)).sample(0).observation
    torch.testing.assert_close(small * 255, large, rtol=1e-5, atol=1e-3)
    assert (small - x).abs().max() > 0.1
