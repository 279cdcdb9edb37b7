"""The artifact: one folder a version, every byte bound by a hash, checked by whoever opens it."""
