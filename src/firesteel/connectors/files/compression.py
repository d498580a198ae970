"""Compressed files: which codec a file has, how its bytes are read and written, and how many plain bytes it holds.

gzip, bz2, zstd and lz4 (frames), as pyarrow reads them; several streams in a row are one file. Nobody can begin in the
middle of such a file, so it is read whole by one subtask.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

import pyarrow as pa

from firesteel.connectors.files.paths import InputFile, InputFiles, first_line
from firesteel.errors import FiresteelError, UsageError

CODECS = {"gzip": "gz", "bz2": "bz2", "zstd": "zst", "lz4": "lz4"}
"""Codec to the ending of its files."""

_BY_ENDING = {"gz": "gzip", "gzip": "gzip", "bz2": "bz2", "zst": "zstd", "zstd": "zstd", "lz4": "lz4"}
_OTHERS = re.compile(r"\.(snappy|xz|br|zip|deflate|Z|7z)$", re.IGNORECASE)
_ALIASES = {"gz": "gzip", "bzip2": "bz2", "zst": "zstd", "uncompressed": "none"}
_THREADS = 16
_SAMPLED_FILES, _SAMPLE_BYTES = 8, 1 << 20
_UNKNOWN_RATIO = 4.0
_ZSTD, _LZ4 = b"\x28\xb5\x2f\xfd", b"\x04\x22\x4d\x18"
_MAGIC = {"gzip": b"\x1f\x8b\x08", "zstd": _ZSTD, "lz4": _LZ4}
"""How files begin that no text begins like."""


def codec_option(compression: str | None, what: str, *, infer: bool) -> str | None:
    """The option ``compression`` as a codec, ``"none"``, or None (by file ending, where ``infer``). Raises UsageError."""
    if compression is None or (infer and compression == "infer"):
        return None
    name = _ALIASES.get(str(compression).lower(), str(compression).lower())
    if name not in (*CODECS, "none"):
        auto = ", or leave it out to go by the files' endings" if infer else ""
        raise UsageError(
            f"compression={compression!r} is not one that {what} has.", hint=f"Use {', '.join(CODECS)} or none{auto}."
        )
    return name


def codec_of(path: str, option: str | None) -> str | None:
    """The codec of a file, None for a plain one."""
    if option is not None:
        return None if option == "none" else option
    return _BY_ENDING.get(path.rsplit(".", 1)[-1].lower())


def refuse_other_codecs(found: InputFiles, option: str | None, kind: str) -> None:
    """Raises UsageError for a file whose ending names a compression that cannot be read as a stream."""
    for file in found.files:
        match = _OTHERS.search(file.path)
        if match is not None and option is None:
            raise UsageError(
                f"{found.label(file.path)} is compressed with {match[1]}, which {kind} does not read.",
                hint=f"It reads {', '.join(CODECS)}. Write it again, or read it with Spark: env.read_with_spark(...). "
                "If it is not such a file, say compression='none'.",
            )


def refuse_foreign(label: str, head: bytes, kind: str) -> None:
    """Raises UsageError where a file of text begins as one in UTF-16 does, or as a compressed one. ``head``: at least its first ten bytes."""
    codec = next((codec for codec, magic in _MAGIC.items() if head.startswith(magic)), None)
    if codec is not None:
        raise UsageError(
            f"{label} is compressed with {codec}, and its name has another ending.",
            hint=f"Say compression='{codec}', or give it the ending .{CODECS[codec]}.",
        )
    if head.startswith(b"PK\x03\x04"):
        raise UsageError(
            f"{label} is a zip archive, as Excel's workbooks are, and not text.",
            hint="Unpack it; save a workbook as CSV in UTF-8.",
        )
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise UsageError(
            f"{label} is text in UTF-16, which {kind} does not read.",
            hint="Save it in UTF-8, or read it with Spark: env.read_with_spark(..., encoding='UTF-16').",
        )


@contextmanager
def plain_stream(raw: Any, codec: str | None) -> Generator[Any]:
    """Something to read plain bytes from, in order."""
    if codec is None:
        yield raw
        return
    with pa.CompressedInputStream(raw, codec) as stream:
        yield stream


def damaged(label: str, codec: str | None, error: BaseException) -> FiresteelError:
    """The error for a file that cannot be read."""
    hint = "The file is damaged, or it is not compressed that way." if codec else None
    return FiresteelError(f"{label} cannot be read: {first_line(error)}.", hint=hint)


# --- plain bytes ---------------------------------------------------------------------------------------------


def plain_sizes(found: InputFiles, files: Sequence[InputFile], option: str | None) -> list[int]:
    """Plain bytes of each file, estimated: what a gzip trailer, a zstd or lz4 frame says, else as the first files are
    seen to shrink. A stored size that cannot be (more streams than one, more than 4 GiB) counts as not said."""
    sizes = [file.size for file in files]
    packed = [i for i, file in enumerate(files) if codec_of(file.path, option) is not None and file.size]
    if not packed:
        return sizes
    with ThreadPoolExecutor(_THREADS) as pool:
        said = list(pool.map(partial(_stated_size, found, option), [files[i] for i in packed]))
        unknown = [i for i, size in zip(packed, said, strict=True) if size is None]
        ratios = list(pool.map(partial(_seen_ratio, found, option), [files[i] for i in unknown[:_SAMPLED_FILES]]))
    ratio = sum(ratios) / len(ratios) if ratios else _UNKNOWN_RATIO
    for i, size in zip(packed, said, strict=True):
        sizes[i] = round(files[i].size * ratio) if size is None else size
    return sizes


def _stated_size(found: InputFiles, option: str | None, file: InputFile) -> int | None:
    codec = codec_of(file.path, option)
    try:
        with found.filesystem.open_input_file(file.path) as stream:
            if codec == "gzip" and file.size >= 18:
                size = int.from_bytes(stream.read_at(4, file.size - 4), "little")
            else:
                size = _frame_size(stream.read_at(min(18, file.size), 0))
    except (OSError, pa.ArrowException):  # reading will tell what is wrong with it
        return None
    return size if size is not None and file.size * 0.9 - 64 <= size <= file.size * 1100 else None


def _frame_size(head: bytes) -> int | None:
    """The content size in the header of a zstd frame (RFC 8878) or an lz4 frame; None where there is none."""
    if head.startswith(_LZ4) and len(head) >= 14:
        return int.from_bytes(head[6:14], "little") if head[4] & 0x08 else None
    if not head.startswith(_ZSTD) or len(head) < 6:
        return None
    flags = head[4]
    single = bool(flags & 0x20)
    width = (1 if single else 0, 2, 4, 8)[flags >> 6]
    at = 5 + (0 if single else 1) + (0, 1, 2, 4)[flags & 3]
    if not width or len(head) < at + width:
        return None
    return int.from_bytes(head[at : at + width], "little") + (256 if width == 2 else 0)


def _seen_ratio(found: InputFiles, option: str | None, file: InputFile) -> float:
    codec = codec_of(file.path, option)
    assert codec is not None
    try:
        with found.filesystem.open_input_file(file.path) as raw:
            head = raw.read_at(min(file.size, _SAMPLE_BYTES), 0)
        source = pa.BufferReader(head)
        plain = 0
        with pa.CompressedInputStream(source, codec) as stream:
            try:
                while part := stream.read(1 << 16):
                    plain += len(part)
                    if plain >= 2 * _SAMPLE_BYTES:
                        break
            except OSError:  # the head of a longer file ends in the middle
                pass
            used = source.tell()
        return plain / used if used and plain else _UNKNOWN_RATIO
    except (OSError, pa.ArrowException):
        return _UNKNOWN_RATIO
