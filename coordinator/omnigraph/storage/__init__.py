"""Effects behind small protocols: paths, objects, Lance, the manifest."""
