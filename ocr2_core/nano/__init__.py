"""A small OCR2 model that reads its own kind of page: page generator, training and weights."""
