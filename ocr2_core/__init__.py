"""Page images in, typed blocks and ledger rows out. Importing this package loads nothing heavy."""
