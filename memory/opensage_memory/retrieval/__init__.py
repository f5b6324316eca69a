"""Finds what answers a question: words, vectors and graph in one score."""
