"""Sweeps: a matrix of models, data sets, editors and shards, run on this machine or on a cluster."""
