"""A document in, cited search out: chunks, vectors, Qdrant. Importing this package loads nothing heavy."""
