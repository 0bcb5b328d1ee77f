"""Writes the images and what Hugging Face's image processors make of them: index.json and NAME.values.gz.

    pip install -r ../../../models/export/requirements.txt pillow==12.0.0
    python make.py

An image is a few shapes and noise of small numbers, so that it is the same everywhere. Values are float32 of
[3, height, width].
"""

import gzip
import io
import json
from importlib.metadata import version
from pathlib import Path

import numpy as np
from PIL import Image
from transformers import CLIPImageProcessor, DeiTImageProcessor, DonutImageProcessor, ViTImageProcessor

HERE = Path(__file__).resolve().parent
CLASSES = {c.__name__: c for c in (CLIPImageProcessor, DeiTImageProcessor, DonutImageProcessor, ViTImageProcessor)}


def picture(height, width):
    """Slopes, a grid of thin lines, text-like blocks and noise."""
    y, x = np.mgrid[0:height, 0:width]
    state = (x * 7919 + y * 104729 + x * y * 31) % 251
    red = (x * 255 // max(width - 1, 1) + state // 8) % 256
    green = np.where((x // 3 + y // 5) % 2 == 0, 230, 20) + state % 16
    blue = np.where((x % 7 == 0) | (y % 9 == 0), 255, y * 200 // max(height - 1, 1))
    return Image.fromarray(np.stack([red, green, blue], -1).clip(0, 255).astype(np.uint8), "RGB")


IMAGES = {  # file: (size, mode, how it is saved)
    "wide.png": ((37, 90), "RGB", {}),
    "tall.png": ((101, 43), "RGB", {}),
    "tiny.png": ((5, 3), "RGB", {}),
    "long.png": ((9, 400), "L", {}),
    "grey.png": ((40, 52), "L", {}),
    "bits.png": ((33, 31), "1", {}),
    "palette.png": ((45, 64), "P", {"transparency": 3}),
    "alpha.png": ((48, 40), "RGBA", {}),
    "greyalpha.png": ((30, 30), "LA", {}),
    "fine.jpg": ((50, 61), "RGB", {"quality": 95, "subsampling": 0}),
    "half.jpg": ((50, 61), "RGB", {"quality": 90, "subsampling": 1}),
    "quarter.jpg": ((51, 60), "RGB", {"quality": 85, "subsampling": 2}),
    "progressive.jpg": ((40, 40), "RGB", {"quality": 80, "progressive": True}),
    "grey.jpg": ((40, 44), "L", {"quality": 90}),
}

PLAIN = {"do_resize": False, "image_processor_type": "ViTImageProcessor"}
NORMAL = {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}
VIT = {"image_processor_type": "ViTImageProcessor", "size": {"height": 32, "width": 32}}
DEIT = {"image_processor_type": "DeiTImageProcessor", **NORMAL}
DONUT = {"image_processor_type": "DonutImageProcessor", "size": {"height": 64, "width": 48}}
CLIP = {"image_processor_type": "CLIPImageProcessor"}

CASES = [  # image, configuration
    *[(name, {**PLAIN, "do_normalize": False}) for name in IMAGES],
    *[(name, {**VIT, "resample": by, "size": size}) for by in range(6) for name, size in
      (("wide.png", {"height": 32, "width": 24}), ("tiny.png", 20), ("tall.png", [50, 60]))],
    ("wide.png", VIT), ("palette.png", VIT), ("alpha.png", {**VIT, **NORMAL}), ("grey.png", {**VIT, "do_rescale": False}),
    ("wide.png", {**VIT, "size": 32, "image_mean": 0.25, "image_std": 0.3, "rescale_factor": 0.01}),
    ("wide.png", {"feature_extractor_type": "ViTFeatureExtractor", "size": 30, "do_normalize": True, "resample": 2}),
    ("wide.png", {**VIT, "do_convert_rgb": True, "do_thumbnail": True, "do_pad": True, "image_mean": None}),
    ("wide.png", {**DEIT, "size": 40, "crop_size": {"height": 32, "width": 30}}),
    ("tall.png", {**DEIT, "size": {"height": 41, "width": 36}, "crop_size": 37, "resample": 1}),
    ("wide.png", {**DEIT, "do_resize": False, "crop_size": {"height": 51, "width": 61}}),
    ("tall.png", {**DEIT, "do_resize": False, "crop_size": {"height": 60, "width": 80}}),
    ("tall.png", {**DEIT, "size": 33, "do_center_crop": False}),
    ("wide.png", DONUT), ("tall.png", DONUT), ("tiny.png", DONUT), ("long.png", DONUT), ("grey.jpg", DONUT),
    ("wide.png", {**DONUT, "do_align_long_axis": True}),
    ("tall.png", {**DONUT, "do_align_long_axis": True, "size": [64, 48]}),
    ("wide.png", {**DONUT, "do_align_long_axis": True, "do_resize": False}),
    ("long.png", {**DONUT, "do_resize": False, "size": {"height": 60, "width": 48}}),
    ("long.png", {**DONUT, "do_resize": False, "do_align_long_axis": True, "size": {"height": 61, "width": 20}}),
    ("tall.png", {**DONUT, "do_resize": False, "size": {"height": 20, "width": 30}}),
    ("wide.png", {**DONUT, "resample": 3, **NORMAL}),
    ("wide.png", {**CLIP, "size": {"shortest_edge": 30}, "crop_size": {"height": 28, "width": 28}}),
    ("tall.png", {**CLIP, "size": 34, "crop_size": 30}),
    ("tall.png", {**CLIP, "size": {"height": 20, "width": 30}, "do_center_crop": False}),
]


def pack(data):
    buffer = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", fileobj=buffer, mtime=0, compresslevel=9) as z:
        z.write(data)
    return buffer.getvalue()


def main():
    for name, ((height, width), mode, options) in IMAGES.items():
        image = picture(height, width)
        if mode in ("RGBA", "LA"):
            image.putalpha(Image.fromarray((np.mgrid[0:height, 0:width][1] * 5 % 256).astype(np.uint8), "L"))
        image.convert(mode, **({"palette": Image.Palette.ADAPTIVE, "colors": 40} if mode == "P" else {})).save(HERE / name, **options)
    cases, values = [], b""
    for name, config in CASES:
        kind = config.get("image_processor_type") or config["feature_extractor_type"].replace("FeatureExtractor", "ImageProcessor")
        made = CLASSES[kind](**{k: v for k, v in config.items() if not k.endswith("_type")})
        out = made(Image.open(HERE / name).convert("RGB"), return_tensors="np")["pixel_values"][0].astype("<f4")
        cases.append({"image": name, "config": config, "shape": list(out.shape)})
        values += np.ascontiguousarray(out).tobytes()
    (HERE / "values.gz").write_bytes(pack(values))
    made_by = {p: version(p) for p in ("transformers", "pillow", "numpy")}
    lines = ",\n".join("  " + json.dumps(c) for c in cases)
    (HERE / "index.json").write_text('{"made_by": ' + json.dumps(made_by) + ',\n "cases": [\n' + lines + "\n]}\n")


if __name__ == "__main__":
    main()
