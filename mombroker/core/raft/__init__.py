"""Replicas of one server agree on its batches: Raft (Ongaro and Ousterhout 2014) without I/O, clock or randomness."""
