"""JPEG decoders that are compared with the product's own: each states all in its own file.

Importing this package adds them to `wallclock.stages.decode.DECODERS`. A library is imported
when its decoder is made.
"""

from importlib import import_module

from harness import peers
from wallclock.stages import decode

#: The libraries that are compared, in the order of tables and figures. Those that the product lacks
#: are modules of this package, which define `DECODER`.
NAMES = (
    "pil",  # what the others are compared with
    "opencv",
    "turbojpeg",
    "simplejpeg",
    "imagecodecs",
    "kornia_rs",
)


def _register(name: str) -> None:
    """Import a module of this package. Raises TypeError: its decoder has another name."""
    decoder: decode.Decoder = import_module(f"{__name__}.{name}").DECODER
    if decoder.name != name:
        raise TypeError(f"{__name__}.{name}: its decoder must be called {name}, not {decoder.name}")
    if decode.DECODERS.setdefault(name, decoder) is not decoder:
        raise ValueError(f"two decoders are called {name}")


for _name in NAMES:
    if _name not in decode.DECODERS:  # not one of the product's
        _register(_name)

#: Every decoder that a recipe may name.
DECODERS = {name: decode.DECODERS[name] for name in (*NAMES, "native")}
#: Decoder → its codec's entry of `provenance.versions()`.
LIBRARY_OF = {name: decoder.codec or decoder.libraries[0] for name, decoder in DECODERS.items()}


def installed(name: str) -> str:
    """What is installed of an optional decoder, for the key of its cells.

    The versions of all others are among those of the lock, which are part of every key.
    """
    decoder = DECODERS[name]
    return peers.installed(decoder.libraries) if decoder.optional else ""
