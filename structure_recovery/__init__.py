"""Blocks of all pages in, one document tree out. Importing this package loads nothing heavy."""
