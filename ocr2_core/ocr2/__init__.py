"""The OCR2 decoder: SR-SWA attention and infinite decoding. Importing this package loads nothing heavy."""
