"""Compare the source bucket, the manifests and the knowledge base once a day, and mend what differs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from airflow.sdk import DAG, CronDataIntervalTimetable, Param
from ocr2kb_operators import TASK_DEFAULTS, AuditOperator

DOC = """
### Does the knowledge base hold what it should?

Objects that were deleted lose their points and keep a tombstone; points of no published revision go; a published
document that lacks points is loaded again from its stored chunks. Nothing is read anew: objects that are new or changed
are left to `ingest_manuals`, and only reported here.

The run is red when something could not be mended. It changes nothing at all when more than a fifth of the published
documents (and at least five) have no object any more: then the bucket is more likely to be wrong. `force` says that it
is right.
"""

PARAMS = {
    "fix": Param(
        True,
        type="boolean",
        title="Mend",
        description="Off: report only, and make the run red when there is something to mend.",
    ),
    "force": Param(
        False,
        type="boolean",
        title="Even if much would be deleted",
        description="Delete points even when more than a fifth of the published documents have no object any more.",
    ),
}

with DAG(
    dag_id="audit_knowledge_base",
    dag_display_name="Audit the knowledge base",
    description=__doc__,
    doc_md=DOC,
    schedule=CronDataIntervalTimetable("30 3 * * *", timezone="UTC"),
    start_date=datetime(2024, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    dagrun_timeout=timedelta(hours=6),
    params=PARAMS,
    tags=["ocr2-kb"],
    default_args={**TASK_DEFAULTS, "retries": 3, "execution_timeout": timedelta(hours=2)},
):
    AuditOperator(
        task_id="audit",
        pool="knowledge_base",
        doc_md="Objects against manifests against points; what differs is listed in the log.",
    )
