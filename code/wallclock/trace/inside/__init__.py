"""What goes into the traced program: standard library only, and nothing of `wallclock`.

The traced program may have another `wallclock`, or none. Its `sitecustomize` loads this package
under a name of its own, and therefore its modules import each other relatively.
"""
