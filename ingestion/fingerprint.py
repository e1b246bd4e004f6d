"""Stage fingerprints: changed code, settings or models never reuse an old result."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

FINGERPRINT_LENGTH = 16


def fingerprint(stage: str, identity: Mapping[str, object], *upstream: str) -> str:
    """A short hash of a stage's name, everything its result depends on, and the fingerprints of the stages before.

    `identity` must be JSON-able; the order of its keys does not matter.
    """
    canonical = json.dumps([stage, dict(identity), list(upstream)], sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(canonical.encode()).hexdigest()[:FINGERPRINT_LENGTH]
