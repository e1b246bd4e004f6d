"""Any S3 endpoint: MinIO, AWS, the embedded gateway. Streams both ways; keys stay keys and never become local paths."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import IO, TYPE_CHECKING, BinaryIO, NoReturn
from urllib.parse import urlsplit

from ingestion.errors import AccessRefused, IngestionError, ObjectKeyRefused, ObjectMissing, ServiceUnavailable
from ingestion.settings import Settings

if TYPE_CHECKING:
    from minio import Minio

STREAM_BYTES = 1 << 20

_REFUSED_ACCESS = {
    "AccessDenied",
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "ExpiredToken",
    "InvalidToken",
    "AuthorizationHeaderMalformed",
}
_MISSING = {"NoSuchKey", "NoSuchBucket", "ResourceNotFound", "NoSuchVersion"}
_BAD_KEY = {"XMinioInvalidObjectName", "InvalidObjectName", "KeyTooLongError", "XMinioInvalidResourceName"}


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One object as the store lists it; `last_modified` is timezone-aware."""

    bucket: str
    key: str
    etag: str
    size_bytes: int
    last_modified: datetime


@dataclass(frozen=True, slots=True)
class Download:
    """What arrived: `sha256` (hex) and the size of the bytes, and the ETag they were served with."""

    sha256: str
    size_bytes: int
    etag: str


class ObjectStore:
    """Thin over minio-py: its errors become ours, which say whether a retry can help.

    All methods raise ServiceUnavailable when the endpoint does not answer or asks to slow down, AccessRefused for wrong
    credentials or rights, ObjectMissing and ObjectKeyRefused where they apply.
    """

    def __init__(self, client: Minio, endpoint: str, part_bytes: int) -> None:
        self._client = client
        self._endpoint = endpoint
        self._part_bytes = part_bytes

    @classmethod
    def connect(cls, settings: Settings) -> ObjectStore:
        """A store for the settings' endpoint. Nothing is sent yet."""
        import urllib3
        from minio import Minio

        url = urlsplit(settings.s3_endpoint)
        pool = urllib3.PoolManager(
            timeout=urllib3.Timeout(connect=settings.s3_connect_timeout_s, read=settings.s3_read_timeout_s),
            retries=urllib3.Retry(total=3, backoff_factor=0.3, status_forcelist=(500, 502, 503, 504)),
            maxsize=8,
            cert_reqs="CERT_REQUIRED" if settings.s3_verify_tls else "CERT_NONE",
            ca_certs=str(settings.s3_ca_file.expanduser()) if settings.s3_ca_file else None,
        )
        client = Minio(
            url.netloc,
            access_key=settings.s3_access_key or None,
            secret_key=settings.s3_secret_key.get_secret_value() or None,
            secure=url.scheme == "https",
            region=settings.s3_region,
            http_client=pool,
        )
        return cls(client, settings.s3_endpoint, settings.s3_part_bytes)

    def ensure_bucket(self, bucket: str) -> None:
        """Make the bucket if it is not there (two makers at once are fine)."""
        from minio.error import S3Error

        with self._errors(bucket, ""):
            try:
                if not self._client.bucket_exists(bucket_name=bucket):
                    self._client.make_bucket(bucket_name=bucket)
            except S3Error as error:
                if error.code not in ("BucketAlreadyOwnedByYou", "BucketAlreadyExists"):
                    raise

    def list(
        self,
        bucket: str,
        prefix: str = "",
        *,
        modified_from: datetime | None = None,
        modified_to: datetime | None = None,
    ) -> Iterator[ObjectInfo]:
        """Objects under `prefix` at any depth, in key order, with modified_from <= last_modified < modified_to."""
        with self._errors(bucket, prefix):
            for item in self._client.list_objects(bucket_name=bucket, prefix=prefix, recursive=True):
                if item.is_dir or item.object_name is None or item.last_modified is None:
                    continue
                if modified_from is not None and item.last_modified < modified_from:
                    continue
                if modified_to is not None and item.last_modified >= modified_to:
                    continue
                yield ObjectInfo(
                    bucket, item.object_name, (item.etag or "").strip('"'), item.size or 0, item.last_modified
                )

    def stat(self, bucket: str, key: str) -> ObjectInfo:
        """What the store knows of one object."""
        with self._errors(bucket, key):
            found = self._client.stat_object(bucket_name=bucket, object_name=key)
            assert found.last_modified is not None
            return ObjectInfo(bucket, key, (found.etag or "").strip('"'), found.size or 0, found.last_modified)

    def exists(self, bucket: str, key: str) -> bool:
        try:
            self.stat(bucket, key)
        except ObjectMissing:
            return False
        return True

    def download(self, bucket: str, key: str, target: IO[bytes]) -> Download:
        """Stream an object into an open file, hashing on the way. A connection cut short is ServiceUnavailable."""
        with self._errors(bucket, key):
            response = self._client.get_object(bucket_name=bucket, object_name=key)
            try:
                digest = hashlib.sha256()
                size_bytes = 0
                for piece in response.stream(STREAM_BYTES):
                    digest.update(piece)
                    size_bytes += len(piece)
                    _write(target, piece)
                etag = str(response.headers.get("ETag", "")).strip('"')
                return Download(digest.hexdigest(), size_bytes, etag)
            finally:
                response.close()
                response.release_conn()

    def get_bytes(self, bucket: str, key: str) -> bytes:
        """A small object, whole."""
        buffer = io.BytesIO()
        self.download(bucket, key, buffer)
        return buffer.getvalue()

    def upload(self, bucket: str, key: str, source: BinaryIO, *, content_type: str) -> str:
        """Stream an open file (from its position to its end) up, in parts when large. Returns the ETag."""
        start = source.tell()
        length = source.seek(0, os.SEEK_END) - start
        source.seek(start)
        with self._errors(bucket, key):
            result = self._client.put_object(
                bucket_name=bucket,
                object_name=key,
                data=source,
                length=length,
                content_type=content_type,
                part_size=self._part_bytes,
            )
            return (result.etag or "").strip('"')

    def put_bytes(self, bucket: str, key: str, data: bytes, *, content_type: str = "application/octet-stream") -> str:
        """Write a small object whole; readers see the old or the new one. Returns the ETag."""
        return self.upload(bucket, key, io.BytesIO(data), content_type=content_type)

    def remove(self, bucket: str, key: str) -> None:
        """Remove an object; one that is not there is fine."""
        with self._errors(bucket, key):
            self._client.remove_object(bucket_name=bucket, object_name=key)

    @contextmanager
    def _errors(self, bucket: str, key: str) -> Iterator[None]:
        import urllib3
        from minio.error import MinioException, S3Error, ServerError

        try:
            yield
        except S3Error as error:
            self._raise_for(error.code or "", error.message or "", bucket, key, error)
        except (ServerError, urllib3.exceptions.HTTPError, OSError) as error:
            raise self._unavailable(f"{type(error).__name__}: {_innermost(error)}.") from error
        except MinioException as error:
            raise self._unavailable(f"unexpected answer: {error}.") from error
        except ValueError as error:
            # minio-py checks names before it sends anything
            raise ObjectKeyRefused(f"s3://{bucket}/{key}: {error}") from error

    def _raise_for(self, code: str, message: str, bucket: str, key: str, error: Exception) -> NoReturn:
        where = f"s3://{bucket}/{key}" if key else f"bucket {bucket}"
        if code in _MISSING:
            raise ObjectMissing(bucket, key) from error
        if code in _REFUSED_ACCESS:
            raise AccessRefused(
                f"{self._endpoint} refused access to {where}: {code}. Check the access key, the secret and the rights."
            ) from error
        if code in _BAD_KEY:
            raise ObjectKeyRefused(f"{self._endpoint} does not accept the key {key!r}: {message or code}") from error
        raise self._unavailable(f"{code}: {message} ({where}).") from error

    def _unavailable(self, cause: str) -> ServiceUnavailable:
        return ServiceUnavailable(
            f"object store {self._endpoint}", cause, "Check that it runs and that OCR2KB_S3_ENDPOINT names it."
        )


def _write(target: IO[bytes], piece: bytes) -> None:
    try:
        target.write(piece)
    except OSError as error:
        # a full disk here must not read as an outage of the store
        raise IngestionError(f"cannot write a downloaded object to the local disk: {error}") from error


def _innermost(error: BaseException) -> str:
    """urllib3 wraps the real cause several times; its `reason` leads to it."""
    reason = getattr(error, "reason", None)
    return _innermost(reason) if isinstance(reason, BaseException) else str(reason or error)
