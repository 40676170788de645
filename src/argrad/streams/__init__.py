"""Weighted samples of what does not fit into memory: streams, shards, data sets, indexes."""
