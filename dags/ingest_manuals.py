"""Scanned manuals of the source bucket → the knowledge base: every hour, by hand, or over past intervals."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from airflow.sdk import DAG, CronDataIntervalTimetable, Param, task_group
from ocr2kb_operators import AS_IN_SETTINGS, TASK_DEFAULTS, ListSourcesOperator, ReportOperator, StageOperator

DOC = """
### Scanned manuals into the knowledge base

Each run takes the objects of the source bucket that were modified in its data interval and, for each document,

1. **fetch**: finds its revision, refuses files that cannot be read, skips what is published already;
2. **read**: reads every page into blocks (pool and queue `gpu`; a repeated try goes on at the first unread page group);
3. **recover**: restores headings, reading order, tables and paragraphs over all pages;
4. **chunk**: cuts the document into cited chunks;
5. **load**: passes the publish gate and replaces the document's points in Qdrant (pool `knowledge_base`).

**report** compares what was listed with what was achieved. The run is red when a document has no outcome (see its red
task), or when all documents were quarantined; a single quarantined document, whose reason is in the report's log and in
`ocr2kb status`, leaves it green unless `fail_on_quarantine` is set.

**By hand**: trigger the DAG; without parameters it takes the whole bucket (not the data interval the form shows), and
unchanged documents are skipped at once.
**Past intervals**: *Trigger → Backfill* in the UI, or
`airflow backfill create --dag-id ingest_manuals --from-date 2026-01-01 --to-date 2026-01-31`
(`--reprocess-behavior failed` repeats the red ones).

**Pools** are made once: `airflow pools set gpu 1 "reading pages"` (slots = documents read at the same time) and
`airflow pools set knowledge_base 1 "writing to Qdrant"` (1 for Qdrant's local files, more for a server).
**Connections** `ocr2kb_minio` and `ocr2kb_qdrant` win over the `OCR2KB_…` settings where they exist.
"""

PARAMS = {
    "keys": Param(
        [],
        type=["array", "null"],
        items={"type": "string", "minLength": 1, "maxLength": 1024},
        title="Object keys",
        description="Exactly these objects of the source bucket, one a line. Leave empty to choose by prefix and time.",
    ),
    "prefix": Param(
        "",
        type=["string", "null"],
        maxLength=1024,
        title="Prefix",
        description="Only objects whose key starts with this, for example vendor-a/ . Empty: the whole bucket.",
    ),
    "modified_from": Param(
        None,
        type=["null", "string"],
        format="date-time",
        title="Modified from",
        description="Manual runs only (their data interval is not used): objects modified at this time or later.",
    ),
    "modified_to": Param(
        None,
        type=["null", "string"],
        format="date-time",
        title="Modified before",
        description="Manual runs only: objects modified before this time.",
    ),
    "force": Param(
        False,
        type="boolean",
        title="Repeat everything",
        description="Read and load again even what is published with the same settings. Costs a full reading.",
    ),
    "engine": Param(
        AS_IN_SETTINGS,
        type="string",
        enum=[AS_IN_SETTINGS, "auto", "rapidocr", "ocr2", "served"],
        title="Reading engine",
        description="Another engine for this run than the one in the settings.",
    ),
    "ocr": Param(
        AS_IN_SETTINGS,
        type="string",
        enum=[AS_IN_SETTINGS, "auto", "always"],
        title="Recognition",
        description="auto: sound text layers are used, other pages recognised; always: every page is recognised.",
    ),
    "max_documents": Param(
        None,
        type=["null", "integer"],
        minimum=1,
        title="At most this many documents",
        description="For a trial: the first documents in key order, the others are left out (and the log says so).",
    ),
    "fail_on_quarantine": Param(
        False,
        type="boolean",
        title="Fail on quarantine",
        description="Make the run red when any document was quarantined.",
    ),
}

# [core] max_map_length is 1,024: beyond this many documents a mapped task takes several
MAX_BATCH_COUNT = 1000

with DAG(
    dag_id="ingest_manuals",
    dag_display_name="Ingest manuals",
    description=__doc__,
    doc_md=DOC,
    schedule=CronDataIntervalTimetable("0 * * * *", timezone="UTC"),
    start_date=datetime(2024, 1, 1, tzinfo=UTC),
    catchup=False,
    # one run at a time: two would read the same document twice
    max_active_runs=1,
    dagrun_timeout=timedelta(hours=24),
    params=PARAMS,
    tags=["ocr2-kb"],
    default_args={**TASK_DEFAULTS, "retries": 5, "execution_timeout": timedelta(hours=1)},
):
    listed = ListSourcesOperator(
        task_id="list_sources",
        max_batch_count=MAX_BATCH_COUNT,
        doc_md="Chooses the documents: the run's data interval, or `keys`, `prefix` and the times of a manual run.",
    )

    @task_group(group_id="document", tooltip="One document, from its pages to its points")
    def document(batch: list[dict[str, object]]) -> None:
        fetched = StageOperator(
            task_id="fetch",
            stage="fetch",
            jobs=batch,
            doc_md="Revision and triage: refuses what cannot be read, skips what is published already.",
        )
        pages = StageOperator(
            task_id="read",
            stage="read",
            jobs=fetched.output,
            pool="gpu",
            queue="gpu",
            execution_timeout=timedelta(hours=12),
            doc_md="Reads every page, a log line each. A repeated try goes on at the first unread page group.",
        )
        recovered = StageOperator(
            task_id="recover",
            stage="recover",
            jobs=pages.output,
            doc_md="Headings and their levels, reading order, tables and paragraphs, over all pages of the document.",
        )
        chunked = StageOperator(
            task_id="chunk",
            stage="chunk",
            jobs=recovered.output,
            doc_md="Cuts the document into chunks that keep their heading path, pages and boxes.",
        )
        StageOperator(
            task_id="load",
            stage="load",
            jobs=chunked.output,
            pool="knowledge_base",
            doc_md="The publish gate, then embedding and the exchange of the document's points in Qdrant.",
        )

    documents = document.expand(batch=listed.output)

    report = ReportOperator(
        task_id="report",
        listed=listed.output,
        trigger_rule="all_done",
        doc_md="Published, partial, quarantined, unaccounted for: the run's account, red when it does not balance.",
    )

    documents >> report
