"""How things are measured: cells, records, protocols, corpora, loaders of others, a test bed.

Uses `wallclock`, the product, and is never imported by it. Importing this package adds the decoders
and runtimes to the product's registries that are only there to be compared.
"""

from harness import decoders as decoders
from harness import runtimes as runtimes
