"""Frozen values: what the graph is made of, with a codec for each one that is stored."""
