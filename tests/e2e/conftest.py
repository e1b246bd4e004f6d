"""The real services once for all end-to-end tests, in a directory and on ports of their own."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import mkdtemp

import pytest

from ingestion.services.process import any_free_port
from ingestion.services.stack import EmbeddedStack
from ingestion.settings import Settings
from ingestion.workspace import Workspace
from tests.e2e.services import RunningServices

# one page a group: even a short manual has several, so that a killed reading has something to keep
TASK_SETTINGS = {"OCR2KB_PAGE_GROUP_SIZE": "1"}


@pytest.fixture(scope="module")
def services(request: pytest.FixtureRequest) -> Iterator[RunningServices]:
    for name in [name for name in os.environ if name.startswith(("OCR2KB_", "AIRFLOW_"))]:
        # another test's or the developer's settings must not steer these services
        del os.environ[name]
    os.environ.update(TASK_SETTINGS)
    # not in pytest's own folder: each pytest that starts closes that to other users, as PostgreSQL is under root
    state_dir = Path(mkdtemp(prefix="ocr2kb-e2e-"))
    stack = EmbeddedStack(state_dir, s3_port=any_free_port(), airflow_port=any_free_port())
    try:
        access = stack.start()
        # what the services wrote into the state directory is all that the command line needs, too
        with Workspace(Settings.load(state_dir=state_dir)) as workspace:
            workspace.ensure_buckets()
            yield RunningServices(stack, access, workspace)
    finally:
        stack.stop()
        for name in TASK_SETTINGS:
            del os.environ[name]
    assert stack.status() == {"Airflow": False, "PostgreSQL": False, "S3 gateway": False}
    if not request.session.testsfailed:
        # after a failure the logs stay for whoever looks into it
        shutil.rmtree(state_dir)
