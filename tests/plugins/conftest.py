"""Airflow reads its configuration on import: a home of its own and the plugins on the path come first."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]

os.environ.update(
    AIRFLOW_HOME=tempfile.mkdtemp(prefix="ocr2kb-airflow-"),
    AIRFLOW__CORE__LOAD_EXAMPLES="False",
    AIRFLOW__CORE__DAGS_FOLDER=str(REPOSITORY / "dags"),
    AIRFLOW__CORE__PLUGINS_FOLDER=str(REPOSITORY / "plugins"),
)
sys.path.insert(0, str(REPOSITORY / "plugins"))
