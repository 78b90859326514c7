"""Benchmarks that chose `recipe=fast`: its DCT margin, and its decoder and resizer."""
