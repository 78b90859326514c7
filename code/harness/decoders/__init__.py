"""JPEG decoders that are compared with the product's own: each states all in its own file.

Importing this package registers them (`wallclock.stages.decode.register`). A library is imported
when its decoder is made.
"""

from importlib import import_module

from wallclock.stages import decode

#: Every decoder, in the order of tables and figures; those that the product lacks are modules here.
NAMES = ("pil", "opencv", "turbojpeg", "simplejpeg", "imagecodecs", "kornia_rs")
_OWN_OF_PRODUCT = ("pil", "simplejpeg")

for _name in NAMES:
    if _name not in _OWN_OF_PRODUCT:
        decode.register(import_module(f"{__name__}.{_name}").DECODER)

DECODERS = {name: decode.DECODERS[name] for name in NAMES}
#: Decoder → its codec's entry of `provenance.versions()`.
LIBRARY_OF = {name: decoder.codec or decoder.libraries[0] for name, decoder in DECODERS.items()}
