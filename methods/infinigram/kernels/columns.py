"""An engine's shards as one table, int64 [S, 11], whose columns are numbered here.

It holds addresses and sizes of arrays that the engine keeps alive. A call with one argument is cheaper than one with
ten arrays.
"""

from __future__ import annotations

from numba import types
from numba.extending import intrinsic

TOKENS, POINTERS, FIRSTS, SUFFIXES, WIDTH, NARROW, SIGN, VOCABULARY, SAMPLES, DOCUMENTS, HELD = range(11)
COLUMNS = 11
STEP = 32  # suffixes from one sample to the next
OUTSIDE = -(1 << 63)  # the answer to a query with a token outside the vocabulary


@intrinsic
def at_address(typing_context, address):  # type: ignore[no-untyped-def]
    """An address as a pointer."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    return types.voidptr(types.int64), generate
