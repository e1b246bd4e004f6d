"""`python -m ingestion` is `ocr2kb`."""

from ingestion.cli import main

if __name__ == "__main__":
    main()
