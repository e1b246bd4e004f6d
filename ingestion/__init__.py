"""From objects in a bucket to published sources. Importing this package loads nothing heavy."""
