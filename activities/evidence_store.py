"""Where evidence is kept: a folder, or a bucket that speaks S3. What goes to people and the ledger is a reference."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any, Literal, Protocol

from pydantic import Field

from activities.ports import Unreadable
from medevac.model import Model


class EvidenceStore(Protocol):
    def put(self, key: str, content: bytes) -> str:
        """Keeps it under the key, in place of what was there; its URL. Raises `Unreadable` where it can't."""
        ...

    def get(self, key: str) -> bytes | None:
        """None where there is nothing. Raises `Unreadable`."""
        ...

    def remove(self, key: str) -> None:
        """Also where there is nothing. Raises `Unreadable`. Evidence itself is never removed from here."""
        ...

    def __str__(self) -> str:
        """Where it is."""
        ...


class FolderStore:
    """For one worker, or several that share the folder. Readable for its owner only."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def put(self, key: str, content: bytes) -> str:
        path = self._root / key
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            # Under another name first: a worker that dies leaves no half of it.
            with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as half:
                half.write(content)
                half.flush()
                os.fsync(half.fileno())
            os.replace(half.name, path)
        except OSError as error:
            raise Unreadable(f"evidence can't be written to {self._root}: {error}") from None
        return path.as_uri()

    def get(self, key: str) -> bytes | None:
        try:
            return (self._root / key).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise Unreadable(f"evidence can't be read from {self._root}: {error}") from None

    def remove(self, key: str) -> None:
        try:
            (self._root / key).unlink(missing_ok=True)
        except OSError as error:
            raise Unreadable(f"nothing can be removed from {self._root}: {error}") from None

    def __str__(self) -> str:
        return str(self._root)


class S3Options(Model):
    bucket: str = Field(min_length=3)
    prefix: str = "medevac/"
    region: str | None = None
    endpoint: str | None = None
    """Of another system that speaks S3."""
    kms_key: str | None = None
    """Encrypts with it; unset: as the bucket does by itself."""


class S3Store:
    """Credentials are found as AWS's own tools find them. How long objects are kept is the bucket's matter."""

    def __init__(self, options: S3Options) -> None:
        import boto3  # type: ignore[import-untyped]
        from botocore.config import Config  # type: ignore[import-untyped]

        self._options = options
        self._client: Any = boto3.client(
            "s3", region_name=options.region, endpoint_url=options.endpoint,
            config=Config(connect_timeout=2, read_timeout=10, retries={"total_max_attempts": 2}),
        )  # fmt: skip

    def put(self, key: str, content: bytes) -> str:
        options = self._options
        sealed = {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": options.kms_key} if options.kms_key else {}
        try:
            self._client.put_object(
                Bucket=options.bucket, Key=options.prefix + key, Body=content, ChecksumAlgorithm="SHA256", **sealed
            )
        except Exception as error:
            raise Unreadable(f"evidence can't be written to s3://{options.bucket}: {_short(error)}") from None
        return f"s3://{options.bucket}/{options.prefix}{key}"

    def get(self, key: str) -> bytes | None:
        try:
            found = self._client.get_object(Bucket=self._options.bucket, Key=self._options.prefix + key)
            return bytes(found["Body"].read())
        except self._client.exceptions.NoSuchKey:
            return None
        except Exception as error:
            raise Unreadable(f"evidence can't be read from s3://{self._options.bucket}: {_short(error)}") from None

    def remove(self, key: str) -> None:
        try:
            self._client.delete_object(Bucket=self._options.bucket, Key=self._options.prefix + key)
        except Exception as error:
            raise Unreadable(f"nothing can be removed from s3://{self._options.bucket}: {_short(error)}") from None

    def __str__(self) -> str:
        return f"s3://{self._options.bucket}/{self._options.prefix}"


class EvidenceOptions(Model):
    """`evidence` in the configuration file."""

    kind: Literal["folder", "s3"] = "folder"
    path: Path | None = None
    """Of a folder; unset: `evidence` in the data directory."""
    s3: S3Options | None = None


def open_store(options: EvidenceOptions | None, data_dir: Path) -> EvidenceStore:
    """Raises `ValueError` where the options don't fit together, `ImportError` without the extra `aws`."""
    options = options or EvidenceOptions()
    if options.kind == "s3":
        if options.s3 is None:
            raise ValueError("`kind: s3` needs `s3: {bucket: NAME}`")
        return S3Store(options.s3)
    return FolderStore((options.path or data_dir / "evidence").absolute())


def _short(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0][:200]
