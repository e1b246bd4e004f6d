"""Change the embedding model: fill a collection beside the live one, compare search, switch. No page is read again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from airflow.sdk import DAG, Param
from ocr2kb_operators import TASK_DEFAULTS, ReembedOperator

DOC = """
### Another embedding model

Every published manual is cut for the new model from its stored document and loaded into a collection of its own.
Readers see the old one until all are there and search was compared on questions from the manuals' own contents and
index pages; then the alias is switched in one request. A run that died goes on where it stopped when it is run again.

**Before:** put the model where the workers find it (a folder, or a name of the hub). Pause `ingest_manuals`: its runs
use the model of the settings. **After:** set `OCR2KB_EMBEDDING_MODEL` for workers and readers, then unpause. Going back
is the same run with the old model, and takes seconds while its collection is kept (`ocr2kb collections --drop`).
"""

PARAMS = {
    "model": Param(
        "all-MiniLM-L6-v2",
        type="string",
        minLength=1,
        title="Embedding model",
        description="sentence-transformers folder or hub name; all-MiniLM-L6-v2 is the packaged one.",
    ),
    "max_chunk_tokens": Param(
        None, type=["null", "integer"], minimum=32, title="Chunk size", description="Empty: what the model takes."
    ),
    "check": Param(
        True,
        type="boolean",
        title="Compare search before the switch",
        description="On questions made from the manuals' contents and index pages.",
    ),
    "most_loss": Param(
        0.02, type="number", minimum=0, maximum=1, title="Recall@5 that search may lose", description="Else no switch."
    ),
    "switch": Param(
        True, type="boolean", title="Switch readers to it", description="Off: fill and compare, and leave readers be."
    ),
}

with DAG(
    dag_id="reembed_knowledge_base",
    dag_display_name="Change the embedding model",
    description=__doc__,
    doc_md=DOC,
    schedule=None,
    start_date=datetime(2024, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    dagrun_timeout=timedelta(days=3),
    params=PARAMS,
    tags=["ocr2-kb"],
    default_args={**TASK_DEFAULTS, "retries": 5, "execution_timeout": timedelta(days=2)},
):
    ReembedOperator(
        task_id="reembed",
        pool="knowledge_base",
        doc_md="Fill, compare, switch; the log has a line a manual, and the figures of the comparison.",
    )
