"""omnigraph: a branchable, versioned property-graph lakehouse for Spark."""
