"""Shared fixtures; heavy things are made once a session."""
