"""Batches to vectors."""
