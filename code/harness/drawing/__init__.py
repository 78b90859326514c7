"""Figures: the style that all have, the words in them, and how one says which CSVs it reads."""
