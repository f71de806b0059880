"""What the checks on convolution and convolutional layers share."""

from __future__ import annotations


def library_function(name, *args, **options):
    """Call a function of the library's chapter on convolution."""
    from corollary.theory import convolution

    return getattr(convolution, name)(*args, **options)
