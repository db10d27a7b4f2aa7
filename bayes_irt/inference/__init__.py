"""Inference engines: one function per engine, each returning a `Posterior`."""
