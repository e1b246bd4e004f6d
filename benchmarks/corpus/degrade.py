"""Turn rendered pages into office scans: skew, blur, uneven light, noise, specks, a stamp, JPEG or fax coding.

Every random choice comes from one generator per page, seeded with (seed, document, profile, page number), so that a
page looks the same whichever other pages are built beside it.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageChops, ImageDraw, ImageFilter

STAMP_WORDS = ("RECEIVED", "COPY", "ARCHIV", "CHECKED")


@dataclass(frozen=True, slots=True)
class ScanProfile:
    """How bad a scan is. Gray levels are 0..255; probabilities are per page."""

    dpi: int
    skew_sigma_degrees: float = 0.0
    blur_radius_px: float = 0.0
    noise_sigma: float = 0.0
    specks_per_megapixel: float = 0.0
    black_level: int = 0
    white_level: int = 255
    light_falloff: float = 0.0
    stamp_probability: float = 0.0
    dark_edge_probability: float = 0.0
    jpeg_quality: int = 92
    bilevel: bool = False


PROFILES = {
    "clean300": ScanProfile(dpi=300),
    "office200": ScanProfile(
        dpi=200,
        skew_sigma_degrees=0.35,
        blur_radius_px=0.5,
        noise_sigma=6.0,
        specks_per_megapixel=25,
        black_level=18,
        white_level=246,
        light_falloff=8,
        stamp_probability=0.08,
        dark_edge_probability=0.3,
        jpeg_quality=60,
    ),
    "bad150": ScanProfile(
        dpi=150,
        skew_sigma_degrees=1.5,
        blur_radius_px=0.9,
        noise_sigma=11.0,
        specks_per_megapixel=90,
        black_level=70,
        white_level=215,
        light_falloff=30,
        stamp_probability=0.25,
        dark_edge_probability=0.7,
        jpeg_quality=38,
    ),
    "fax200bw": ScanProfile(
        dpi=200,
        skew_sigma_degrees=0.7,
        blur_radius_px=0.4,
        noise_sigma=14.0,
        specks_per_megapixel=60,
        black_level=10,
        white_level=245,
        light_falloff=10,
        dark_edge_probability=0.5,
        bilevel=True,
    ),
    # Small files for the repository: as office200, but a quieter sensor, since noise is what JPEG spends its bytes on.
    "sample200": ScanProfile(
        dpi=200,
        skew_sigma_degrees=0.35,
        blur_radius_px=0.5,
        noise_sigma=2.5,
        specks_per_megapixel=12,
        black_level=24,
        white_level=246,
        light_falloff=6,
        dark_edge_probability=0.3,
        jpeg_quality=42,
    ),
}


def page_generator(seed: int, document: str, profile_name: str, page_number: int) -> np.random.Generator:
    """The random generator of one page; the same arguments always give the same scan."""
    digest = hashlib.sha256(f"{seed}|{document}|{profile_name}|{page_number}".encode()).digest()
    return np.random.default_rng(int.from_bytes(digest[:8], "big"))


def draw_skew_degrees(profile: ScanProfile, rng: np.random.Generator) -> float:
    """Slight skew is drawn from a clipped normal; a badly fed page (sigma of 1 and more) is always clearly tilted."""
    sigma = profile.skew_sigma_degrees
    if sigma == 0:
        return 0.0
    if sigma >= 1:
        side = -1.0 if rng.random() < 0.5 else 1.0
        return side * float(rng.uniform(0.8, 1.2)) * sigma
    return float(np.clip(rng.normal(0.0, sigma), -2 * sigma, 2 * sigma))


def degrade(page: Image.Image, profile: ScanProfile, rng: np.random.Generator) -> Image.Image:
    """The gray page as the scanner sees it, in the same pixel size."""
    gray = page.convert("L")
    if rng.random() < profile.stamp_probability:
        gray = _stamped(gray, rng)
    skew_degrees = draw_skew_degrees(profile, rng)
    if skew_degrees:
        gray = gray.rotate(skew_degrees, resample=Image.Resampling.BICUBIC, fillcolor=255)
    if profile.blur_radius_px:
        gray = gray.filter(ImageFilter.GaussianBlur(profile.blur_radius_px))
    levels = np.asarray(gray, dtype=np.float32) / 255.0
    levels = profile.black_level + levels * (profile.white_level - profile.black_level)
    if profile.light_falloff:
        levels -= profile.light_falloff * _light_ramp(levels.shape, rng)
    if rng.random() < profile.dark_edge_probability:
        _darken_edge(levels, rng)
    if profile.noise_sigma:
        levels += profile.noise_sigma * rng.standard_normal(levels.shape, dtype=np.float32)
    _add_specks(levels, profile.specks_per_megapixel, rng)
    return Image.fromarray(levels.clip(0, 255).astype(np.uint8))


def encode(page: Image.Image, profile: ScanProfile) -> bytes:
    """Image file bytes: CCITT group 4 for a fax, else JPEG."""
    buffer = io.BytesIO()
    if profile.bilevel:
        black_and_white = page.point([255 if level > 150 else 0 for level in range(256)]).convert("1")
        black_and_white.save(buffer, "TIFF", compression="group4")
    else:
        page.save(buffer, "JPEG", quality=profile.jpeg_quality, optimize=True)
    return buffer.getvalue()


def write_scan(
    document: Any, page_numbers: Iterable[int], profile_name: str, out_path: Path, *, name: str, seed: int
) -> None:
    """Write the chosen pages (1-based) of an open PyMuPDF document as a PDF that holds one image a page and no text."""
    import pymupdf

    profile = PROFILES[profile_name]
    scan = pymupdf.open()
    for page_number in page_numbers:
        source = document[page_number - 1]
        pixmap = source.get_pixmap(dpi=profile.dpi, colorspace=pymupdf.csGRAY, annots=False)
        clean = Image.frombytes("L", (pixmap.width, pixmap.height), pixmap.samples)
        scanned = degrade(clean, profile, page_generator(seed, name, profile_name, page_number))
        page = scan.new_page(width=source.rect.width, height=source.rect.height)
        page.insert_image(page.rect, stream=encode(scanned, profile))
    scan.set_metadata({})
    scan.save(out_path, deflate=True, no_new_id=True)
    scan.close()


def _stamped(gray: Image.Image, rng: np.random.Generator) -> Image.Image:
    width, height = gray.size
    stamp = Image.new("L", (width // 4, height // 16), 255)
    draw = ImageDraw.Draw(stamp)
    draw.rectangle((4, 4, stamp.width - 5, stamp.height - 5), outline=90, width=5)
    word = STAMP_WORDS[int(rng.integers(len(STAMP_WORDS)))]
    draw.text((stamp.width // 10, stamp.height // 4), word, fill=90, font_size=max(12, stamp.height // 2))
    stamp = stamp.rotate(float(rng.uniform(-18, 18)), expand=True, fillcolor=255)
    sheet = Image.new("L", gray.size, 255)
    lowest = max(0.6 * height + 1, height - stamp.height)
    sheet.paste(stamp, (int(rng.uniform(0, width - stamp.width)), int(rng.uniform(0.6 * height, lowest))))
    return ImageChops.darker(gray, sheet)


def _light_ramp(shape: tuple[int, ...], rng: np.random.Generator) -> NDArray[np.float32]:
    """A lamp that is weaker towards one side of the glass: 0..1 rising in a random direction."""
    direction = float(rng.uniform(0, 2 * np.pi))
    down = np.linspace(0, 1, shape[0], dtype=np.float32)[:, None] * np.float32(np.sin(direction))
    right = np.linspace(0, 1, shape[1], dtype=np.float32)[None, :] * np.float32(np.cos(direction))
    return ((down + right) / 2 + 0.5).clip(0, 1).astype(np.float32)


def _darken_edge(levels: NDArray[np.float32], rng: np.random.Generator) -> None:
    """The shadow of the binding along one side."""
    width_px = max(2, int(levels.shape[1] * rng.uniform(0.006, 0.025)))
    shadow = np.linspace(0.35, 1, width_px, dtype=np.float32)
    if rng.random() < 0.5:
        levels[:, :width_px] *= shadow
    else:
        levels[:, -width_px:] *= shadow[::-1]


def _add_specks(levels: NDArray[np.float32], specks_per_megapixel: float, rng: np.random.Generator) -> None:
    height, width = levels.shape
    for _ in range(int(rng.poisson(specks_per_megapixel * height * width / 1e6))):
        top, left = int(rng.integers(0, height - 2)), int(rng.integers(0, width - 2))
        size_y, size_x = (int(side) for side in rng.integers(1, 3, size=2))
        levels[top : top + size_y, left : left + size_x] = rng.uniform(20, 120)
