"""How things are measured: cells, records, protocols, corpora, loaders of others, a test bed.

Uses `wallclock`, the product, and is never imported by it. Importing this package adds to the
product's registries the decoders and the resizer that are only there to be compared.
"""

from harness import decoders as decoders
from harness import resizers as resizers
