"""Memory-mapped token shards and loaders that start again at any position at once."""
