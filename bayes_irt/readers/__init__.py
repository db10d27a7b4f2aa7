"""Readers: one file per source format, each returning `Responses`."""
