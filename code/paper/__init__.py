"""The paper: settings, sessions, claims, tables, figures and reports, from records alone.

`experiments` lies beside `code/`, not in it: whatever starts this package, it is found.
"""

import sys
from pathlib import Path

_ROOT = str(Path(__file__).resolve().parents[2])
if _ROOT not in sys.path:
    sys.path.append(_ROOT)
