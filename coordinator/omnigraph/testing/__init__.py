"""The test kit omnigraph ships: contracts, models, faults."""
