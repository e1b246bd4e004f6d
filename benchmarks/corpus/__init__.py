"""Scanned manuals with known truth: real PDF manuals from Debian packages, degraded as an office scanner would."""
