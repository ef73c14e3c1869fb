"""What a step must return that clips by another norm than L2, by the norm of each tensor, or by value: on every bit.

Plain integers and fractions, written from the definition in `src/reference/mod.rs` and not from the code, so that
reference and kernels have something to disagree with. `clips.py` has the cases and writes `clips.json`.
"""

import struct
from fractions import Fraction
from math import isqrt

DIGIT_BITS, CELLS_THAT_COUNT = 22, 4
# Exponent bits, fraction bits.
FORMATS = {"f32": (8, 23), "f16": (5, 10), "bf16": (8, 7)}


def power(k):
    return Fraction(2) ** k


def f32(x):
    """The f32 nearest to a float; infinity is None."""
    return None if x == float("inf") else Fraction(struct.unpack("<f", struct.pack("<f", x))[0])


# ---- numbers -------------------------------------------------------------------------------------------------------
def ilog2(a):
    k = a.numerator.bit_length() - a.denominator.bit_length()
    return k if power(k) <= a else k - 1


def nearest_even(a):
    n, rest = divmod(a.numerator, a.denominator)
    return n + (2 * rest > a.denominator or (2 * rest == a.denominator and n % 2))


def r24(v):
    """A number that is not negative, rounded to 24 bits."""
    if v == 0:
        return v
    unit = power(ilog2(v) - 23)
    return nearest_even(v / unit) * unit


def r24_sqrt(v):
    if v == 0:
        return v
    # 40 bits of the root or more, and a quarter more if there are further ones.
    k = (ilog2(v) - 80) // 2
    scaled = v / power(2 * k)
    whole = scaled.numerator // scaled.denominator
    root = isqrt(whole)
    more = root * root != scaled
    return r24((root + (Fraction(1, 4) if more else 0)) * power(k))


# ---- formats -------------------------------------------------------------------------------------------------------
def split(fmt, bits):
    """Sign, exponent field and fraction."""
    e, f = FORMATS[fmt]
    return bits >> (e + f), bits >> f & (1 << e) - 1, bits & (1 << f) - 1


def finite(fmt, bits):
    return split(fmt, bits)[1] != (1 << FORMATS[fmt][0]) - 1


def magnitude(fmt, bits):
    e, f = FORMATS[fmt]
    _, field, fraction = split(fmt, bits)
    lowest = 2 - (1 << e - 1) - f
    return fraction * power(lowest) if field == 0 else (fraction + (1 << f)) * power(lowest + field - 1)


def encode(fmt, v, rounded=nearest_even):
    """The bits of a number that is not negative; None if it is too large."""
    e, f = FORMATS[fmt]
    if v == 0:
        return 0
    lowest = 2 - (1 << e - 1)
    exponent = max(ilog2(v), lowest)
    q = rounded(v / power(exponent - f))
    # The leading bit of q adds one to the field, and so does a carry into the next binade.
    bits = ((exponent - lowest) << f) + q
    return bits if bits < (1 << e) - 1 << f else None


def largest(fmt):
    e, f = FORMATS[fmt]
    return ((1 << e) - 1 << f) - 1


# ---- norms ---------------------------------------------------------------------------------------------------------
def digits(value, cell, unit, sums):
    """Adds the digits of a number in its cell and the three below; what lies under those is dropped."""
    n = value // unit(cell - CELLS_THAT_COUNT + 1)
    for c in range(cell - CELLS_THAT_COUNT + 1, cell + 1):
        sums[c] = sums.get(c, 0) + n % (1 << DIGIT_BITS)
        n >>= DIGIT_BITS
    assert n == 0


def highest_cells(sums, whole, unit):
    """The highest four cells, of which the first holds the leading digit of `sums` or the leading bit of `whole`, and
    `whole` down to the last of them."""
    live = [c for c, n in sums.items() if n]
    if whole:
        live.append(next(c for c in range(64, -64, -1) if whole >= unit(c)))
    lowest = max(live, default=0) - CELLS_THAT_COUNT + 1
    kept = sum((n * unit(c) for c, n in sums.items() if c >= lowest), Fraction(0))
    return kept + whole // unit(lowest) * unit(lowest)


def norm(tensors, norm_type, inverse):
    """`tensors`: lists of (format, magnitude of each element)."""
    if norm_type == "Linf":
        return r24(max((x for _, magnitudes in tensors for x in magnitudes), default=Fraction(0)) * inverse)
    sums = {}
    # Of f16 nothing is dropped before all of it is added up.
    whole = Fraction(0)
    binades = {"L1": 22, "L2": 11}[norm_type]
    unit = {"L1": lambda c: power(22 * c - 127), "L2": lambda c: power(22 * c - 254)}[norm_type]
    for fmt, magnitudes in tensors:
        for x in magnitudes:
            term = x if norm_type == "L1" else r24(x * x)
            if fmt == "f16":
                whole += term
            elif x:
                biased = max(ilog2(x) + 127, 0)
                digits(term, biased // binades, unit, sums)
    v = highest_cells(sums, whole, unit)
    return r24((r24(v) if norm_type == "L1" else r24_sqrt(v)) * inverse)


def coefficient_of(measured, max_norm, eps):
    limit = f32(max_norm)
    if limit is None or measured <= limit:
        return Fraction(1)
    return r24(limit / r24(measured + f32(eps)))


# ---- one step ------------------------------------------------------------------------------------------------------
def census(fmt, elements):
    found = [0, 0, 0, None]
    for i, bits in enumerate(elements):
        sign, _, fraction = split(fmt, bits)
        if not finite(fmt, bits):
            found[0 if fraction else 2 if sign else 1] += 1
            found[3] = i if found[3] is None else found[3]
    return found


def stored(fmt, bits, factor, limit):
    """An element times the factor, with its sign; None if it is too large. `limit`: None is none."""
    e, f = FORMATS[fmt]
    product = encode("f32", magnitude(fmt, bits) * factor)
    if fmt != "f32" and product is not None:
        product = encode(fmt, magnitude("f32", product))
    if limit is not None:
        # Rounded down into the format. Magnitudes order like their bits.
        most = encode(fmt, limit, rounded=lambda q: q.numerator // q.denominator)
        most = largest(fmt) if most is None else most
        product = most if product is None or product > most else product
    return None if product is None else product | bits >> (e + f) << (e + f)


def step(tensors, scale, kind, norm_type="L2", max_norm=float("inf"), eps=0.0, clip_value=float("inf")):
    """`tensors`: lists of (format, bits of each element). `kind`: "norm", "each tensor" or "value"."""
    inverse = r24(1 / f32(scale))
    found = [census(fmt, elements) for fmt, elements in tensors]
    bad = [c[3] is not None for c in found]
    per_tensor = kind == "each tensor"

    def answer(total, coefficient, factor, after, each, overflow=False):
        return {
            "found_inf": after is None,
            "overflow": overflow,
            "norm": total,
            "coefficient": coefficient,
            "factor": factor,
            "nonfinite": found,
            "tensors": [elements for _, elements in tensors] if after is None else after,
            "each": each if per_tensor else None,
        }

    def refused(total, norms, overflow=False):
        return answer(total, Fraction(0), Fraction(0), None, [(n, Fraction(0)) for n in norms], overflow)

    magnitudes = [
        None if b else [magnitude(fmt, x) for x in elements] for b, (fmt, elements) in zip(bad, tensors)
    ]
    formats = [fmt for fmt, _ in tensors]
    norms = [
        None if m is None else norm([(fmt, m)], norm_type, inverse) for fmt, m in zip(formats, magnitudes)
    ]
    if any(bad):
        return refused(Fraction(0), norms)
    total = norm(list(zip(formats, magnitudes)), norm_type, inverse)
    coefficient = Fraction(1) if kind == "value" else coefficient_of(total, max_norm, eps)
    each = [coefficient] * len(tensors)
    if per_tensor:
        each = [coefficient_of(n, max_norm, eps) for n in norms]
        coefficient = min(each, default=Fraction(1))
    limit = f32(clip_value) if kind == "value" else None
    after = [
        [stored(fmt, x, r24(c * inverse), limit) for x in elements] for c, (fmt, elements) in zip(each, tensors)
    ]
    if any(x is None for elements in after for x in elements):
        return refused(total, norms, overflow=True)
    factor = r24((Fraction(1) if per_tensor else coefficient) * inverse)
    return answer(total, coefficient, factor, after, list(zip(norms, each)))
