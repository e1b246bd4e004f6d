"""The collections behind one alias: one is live, another may be filled beside it and take its place.

A collection holds the vectors of one model. Changing the model means filling another collection and pointing the alias
to it in one request; the one before stays as it is until it is dropped, so going back is pointing the alias back.
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING

from pydantic import BaseModel

from knowledge_base.collection import (
    DenseEncoder,
    TermEncoder,
    collection_behind,
    create_collection,
    create_payload_indexes,
    identity_differences,
    model_name,
)
from knowledge_base.connection import translated_errors
from knowledge_base.errors import KnowledgeBaseError

if TYPE_CHECKING:
    from knowledge_base.store import KnowledgeBase

logger = logging.getLogger(__name__)


class CollectionInfo(BaseModel):
    """A collection behind the alias. `model`: name of the embedding model, for people; `point_count` is exact."""

    name: str
    model: str
    is_live: bool
    point_count: int


def list_collections(knowledge_base: KnowledgeBase) -> list[CollectionInfo]:
    """All collections that are or were behind the alias, oldest first."""
    client, alias = knowledge_base.client, knowledge_base.options.collection
    with translated_errors(knowledge_base.options.place):
        live = collection_behind(client, alias)
        return [
            CollectionInfo(
                name=name,
                model=model_name(client, name),
                is_live=name == live,
                point_count=client.count(name, exact=True).count,
            )
            for name in _names(knowledge_base)
        ]


def live_collection(knowledge_base: KnowledgeBase) -> str | None:
    """Name of the collection that readers see now."""
    with translated_errors(knowledge_base.options.place):
        return collection_behind(knowledge_base.client, knowledge_base.options.collection)


def ensure_target(knowledge_base: KnowledgeBase, embedder: DenseEncoder, sparse_encoder: TermEncoder) -> str:
    """The newest collection that takes these vectors (begun before, or live once), or a new empty one; its name.

    The live collection counts too: then there is nothing to be changed.
    """
    client, options = knowledge_base.client, knowledge_base.options
    with translated_errors(options.place):
        names = _names(knowledge_base)
        for name in reversed(names):
            if not identity_differences(client, name, embedder, sparse_encoder):
                break
        else:
            name = f"{options.collection}__{_number(names[-1]) + 1 if names else 1}"
            create_collection(client, name, options, embedder, sparse_encoder)
        create_payload_indexes(client, name)
    return name


def switch_alias(knowledge_base: KnowledgeBase, name: str) -> None:
    """Point the alias to `name`, in one request. Raises KnowledgeBaseError when there is no such collection."""
    from qdrant_client import models

    client, alias = knowledge_base.client, knowledge_base.options.collection
    with translated_errors(knowledge_base.options.place):
        if name not in _names(knowledge_base):
            raise KnowledgeBaseError(f"{knowledge_base.options.place} has no collection {name} for the alias {alias}")
        before = collection_behind(client, alias)
        changes: list[models.AliasOperations] = []
        if before is not None:
            changes.append(models.DeleteAliasOperation(delete_alias=models.DeleteAlias(alias_name=alias)))
        create = models.CreateAlias(collection_name=name, alias_name=alias)
        client.update_collection_aliases([*changes, models.CreateAliasOperation(create_alias=create)])
    logger.info("alias %s points to %s (before: %s)", alias, name, before)


def drop_collection(knowledge_base: KnowledgeBase, name: str) -> None:
    """Delete a collection that is not live. Raises KnowledgeBaseError for the live one and for an unknown name."""
    with translated_errors(knowledge_base.options.place):
        if name not in _names(knowledge_base):
            raise KnowledgeBaseError(f"{knowledge_base.options.place} has no collection {name} for this alias")
        if name == collection_behind(knowledge_base.client, knowledge_base.options.collection):
            raise KnowledgeBaseError(f"{name} is live: readers see it. Switch the alias to another one first.")
        knowledge_base.client.delete_collection(name)


def _names(knowledge_base: KnowledgeBase) -> list[str]:
    alias = knowledge_base.options.collection
    pattern = re.compile(rf"{re.escape(alias)}__\d+")
    names = [each.name for each in knowledge_base.client.get_collections().collections]
    return sorted((name for name in names if pattern.fullmatch(name)), key=_number)


def _number(name: str) -> int:
    return int(name.rpartition("__")[2])
