"""Weights that are quantised before they are compared: `wisp.Publisher(…, quantize=…)`.

Codes and scales are ordinary tensors of the run, named and laid out as vLLM loads them. A scheme is
a pure function of one weight, bit for bit, so that codes which did not change are not sent.
"""

from .eight_bit import BlockFp8, ChannelFp8, ChannelInt8, MxFp8
from .four_bit import MxFp4, NvFp4
from .scheme import QuantizeFunction, Scheme, scheme_of

__all__ = [
    "BlockFp8",
    "ChannelFp8",
    "ChannelInt8",
    "MxFp4",
    "MxFp8",
    "NvFp4",
    "QuantizeFunction",
    "Scheme",
    "scheme_of",
]
