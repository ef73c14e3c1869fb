"""Writes `clips.json`: steps with other norms and other limits, and their exact answers from `clips_oracle.py`.

`python3 tests/data/clips.py` where a case was added. A case is what it is called, why it is there, and the step.
"""

import json
from fractions import Fraction
from math import isqrt
from pathlib import Path

from clips_oracle import encode, FORMATS, ilog2, magnitude, power, step

INF = float("inf")
MAX = float(2**128 - 2**104)
LEAST = 2.0**-149
SIGN = {fmt: 1 << sum(bits) for fmt, bits in FORMATS.items()}


def of(fmt, *values):
    """A tensor of values that the format has."""
    elements = []
    for value in values:
        bits = encode(fmt, abs(Fraction(value)))
        assert magnitude(fmt, bits) == abs(Fraction(value)), (fmt, value)
        elements.append(bits | (SIGN[fmt] if str(value).startswith("-") else 0))
    return fmt, elements


def bits(fmt, text):
    return fmt, [int(word, 16) for word in text.split()]


def f32(*values):
    return of("f32", *values)


def f16(*values):
    return of("f16", *values)


def bf16(*values):
    return of("bf16", *values)


CASES = []


def case(name, source, tensors, scale=1.0, **told):
    CASES.append((name, source, tensors, scale, told))


def norm(norm_type, max_norm=INF, eps=0.0):
    return {"kind": "norm", "norm_type": norm_type, "max_norm": max_norm, "eps": eps}


def each(norm_type, max_norm=INF, eps=0.0):
    return {"kind": "each tensor", "norm_type": norm_type, "max_norm": max_norm, "eps": eps}


def value(clip_value):
    return {"kind": "value", "clip_value": clip_value}


# ---- L1 and Linf of all tensors ------------------------------------------------------------------------------------
for n, four in [("L1", 7), ("Linf", 4)]:
    case(f"{n}: 3 and 4 at scale 8", f"norm {four}, limit 1", [f32(24, -32)], 8.0, **norm(n, 1.0))
    case(f"{n}: at the limit", "nothing is written", [f32(3, -4, "-0.0")], **norm(n, float(four), 1e-6))
    below = float(four) - 2.0**-21
    case(f"{n}: the limit one unit below", "clipped", [f32(3, -4)], **norm(n, below))
    case(f"{n}: limit 0", "0 is a limit; signs stay", [f32(3, -4, "-0.0", LEAST)], **norm(n, 0.0, 1e-6))
    case(f"{n}: scale 3", "inverse rounded", [f32(3, -4, 1), f16(1, -3)], 3.0, **norm(n, 2.0, 1e-6))
    case(f"{n}: the least scale", "f32 has no inverse of it", [f32(LEAST, -5 * LEAST, 0)], LEAST, **norm(n, 2.0))
    case(f"{n}: subnormals beside normal numbers", "cell 0 and the one below it",
         [bits("f32", "00000001 00800001 80000007 0affffff 0b000001")], **norm(n, 2.0**-120))
    case(f"{n}: f32's largest", "an L1 norm above f32", [f32(MAX, -MAX, MAX)], **norm(n, 1.0, 1e-6))
    case(f"{n}: largest of each format", "clipped by far", [bits("f32", "7f7fffff"), bits("f16", "7bff fbff"),
         bits("bf16", "ff7f")], **norm(n, 3.0, 1e-6))
    case(f"{n}: a NaN in the second tensor", "nothing changes", [f32(3, 4), bits("f16", "3c00 fe00 3c00")],
         **norm(n, 1.0))
    case(f"{n}: f16 overflows", "scale below 1, below the limit", [f32(1, 2), bits("f16", "7bff")], 0.5, **norm(n, 2e5))
case("L1: 3 and 4, eps 1e-6", "torch's eps", [f32(3), f16(-4)], **norm("L1", 1.0, 1e-6))
case("Linf: a large eps", "eps above the norm", [f32(3, -4)], **norm("Linf", 2.0, 1e6))
case("L1: the limit one unit above", "not clipped", [f32(3, -4)], **norm("L1", 7 + 2.0**-21))
case("Linf: limit 0, norm 0", "at the limit", [f32(0, "-0.0"), f16("-0.0")], 3.0, **norm("Linf", 0.0, 1e-6))
case("L1: an infinite limit still divides", "scale 4", [f32(3, -4), bf16(0.5)], 4.0, **norm("L1"))
case("Linf: scale 1000", "inverse rounded", [bits("f32", "4411a3d7 c3ff0b1c 42f6e979"), bf16(1024, 3)], 1000.0,
     **norm("Linf", 1.0, 1e-6))
case("L1: scale 2^127", "factor below f32's normal numbers", [f32(2.0**127, -(2.0**126)), bf16(2.0**120)],
     2.0**127, **norm("L1", 0.75))
case("Linf: the least scale overflows", "1 / 2^-149 is too large", [f32(1, LEAST)], LEAST, **norm("Linf"))
case("L1: a subnormal scale", "three times the least", [f32(7 * LEAST, -4 * LEAST)], 3 * LEAST, **norm("L1", 1.0))
case("L1: subnormals", "all below 2^-126", [bits("f32", "00000001 80000003 007fffff"), bits("bf16", "8001 007f")],
     **norm("L1", 2.0**-130))
case("Linf: f16's subnormals", "normal in f32", [bits("f16", "0001 8003 03ff 0400")], **norm("Linf", 2.0**-16))
case("L1: f32's largest, at f32's largest", "the limit MAX", [f32(MAX, 2.0**104)], **norm("L1", MAX))
case("L1: f32's largest, no limit", "reported, nothing written", [f32(MAX, -MAX)], **norm("L1"))
case("L1: no tensors", "the norm is 0", [], 8.0, **norm("L1", 1.0))
case("Linf: empty tensors", "the norm is 0", [f32(), f16(), bf16()], **norm("Linf", 1.0))
case("L1: empty tensors between", "they add nothing", [f32(), bf16(3), f16(), f32(-4)], **norm("L1", 1.0))
case("Linf: both infinities", "nothing changes", [bits("bf16", "ff80 3f80 7f80"), bits("f32", "7f800000 40400000")],
     2.0, **norm("Linf", 1.0))
case("L1: a negative NaN that signals", "first and last bit of the fraction",
     [bits("f32", "3f800000 ff800001 ffffffff")], **norm("L1"))
case("Linf: f16 is clipped below its overflow", "scale below 1, above the limit", [f32(1, 2), bits("f16", "7bff")],
     0.5, **norm("Linf", 1e4))

# Sums half way between two numbers of 24 bits, and one more element in each cell below the top one, which is 6.
for what, more in [("alone", []), ("a cell below", [2.0**-10]), ("two cells below", [2.0**-30]),
                   ("three cells below", [2.0**-50]), ("four cells below, ignored", [2.0**-70]),
                   ("more of the ignored cell", [2.0**-62] * 3)]:
    case(f"L1: a tie, {what}", "the even neighbour lies below", [f32(2**24, -1, *more)], **norm("L1"))
case("L1: a tie of the odd", "the even neighbour lies above", [f32(2**24, 3)], **norm("L1"))
case("L1: just below a tie", "24 bits in two cells", [f32(2**24, -(1 - 2.0**-24))], **norm("L1"))
case("L1: many make a tie", "256 times 2^-9 is half of it, and f16's least decides",
     [f32(2**24), f16(*[2.0**-9] * 256, 0.5, 2.0**-24)], **norm("L1"))
case("L1: subnormals below what counts", "top is cell 3, and they lie in cell -1",
     [bits("f32", "27800000 1b800000 00000001 00000003")], **norm("L1"))
case("L1: a subnormal decides", "top is cell 3, and it has a digit in cell 0",
     [bits("f32", "27800000 1b800000 00400000")], **norm("L1"))
case("L1: the lowest digit decides", "top is cell 2", [bits("f32", "1b000000 0f000000 00000001")], **norm("L1"))
case("L1: ends of cells", "biased exponents 21, 22, 43, 44, 65, 66, all bits",
     [bits("f32", "0affffff 0b000000 15ffffff 16000000 20ffffff 21000000 8b000001")], **norm("L1", 2.0**-70))
case("L1: ends of upper cells", "biased exponents 241, 242, 219, 220",
     [bits("f32", "78ffffff 79000000 6dffffff ee000000"), bits("bf16", "79ff f97f")], **norm("L1", 1.0))
case("L1: sums of digits above 22 bits", "600 elements of all ones",
     [bits("f32", "3fffffff " * 600), bits("f16", "7bff " * 5)], **norm("L1", 1024.0))
case("L1: eleven cells", "from the least to the largest", [f32(*[2.0**k for k in range(-149, 128, 11)])],
     **norm("L1", 2.0**100))
# A tie at 2^49, whose last cell counts in units of 2^-17: f16 below that is added up before it is cut off.
TIE = [2.0**49, 2.0**25]
for what, tensors in [("two", [f16(2.0**-18, -(2.0**-18))]), ("one is too few", [f16(2.0**-18)]),
                      ("four", [f16(*[2.0**-19] * 4)]), ("three are too few", [f16(*[2.0**-19] * 3)]),
                      ("the least, 128 of them", [f16(*[2.0**-24] * 128)]),
                      ("the least, 127 are too few", [f16(*[2.0**-24] * 127)]),
                      ("over tensors", [f16(2.0**-19), bf16(0), f16(-3 * 2.0**-19)]),
                      ("bf16 does not", [bf16(2.0**-18), f16(2.0**-18)])]:
    case(f"L1: f16 below what is kept adds up: {what}", "2^-17 decides", [f32(*TIE), *tensors], **norm("L1"))
case("L1: a large sum of f16 cuts nothing", "its cell is 6", [f16(*[65504] * 1025), f32(0.5, 2.0**-60)],
     **norm("L1", 1e5))
case("L1: f16 above the cells of the others", "no digit of f32 is in them",
     [f32(2.0**-62, 2.0**-100), f16(65504, 2.0**-24)], **norm("L1"))
case("L1: tiny f16 beside tiny f32", "f16's least above f32's leading bit",
     [f16(2.0**-24, -3 * 2.0**-24), f32(2.0**-30, 2.0**-54)], **norm("L1", 2.0**-23))
case("Linf: the largest decides, not the sum", "two of the same", [f32(2, -2, 1.5), f16(2), bf16(-2)],
     **norm("Linf", 1.0))
case("Linf: the largest is f16's", "formats compared by value", [bits("f32", "3f800000"), bits("f16", "c001"),
     bits("bf16", "3fff")], **norm("Linf", 1.0))
case("Linf: ties in each format", "the coefficient is 3/4",
     [bits("f32", "49800000 3f800001 3f800003 00000002 00000006 8000000a"),
      bits("f16", "3d56 3d5a 3d57 3d59 3c01 3c03 8002 0006 000a"),
      bits("bf16", "3fae 3fb2 bf81 3f83 0002 0006 000a")], **norm("Linf", 786432.0))

# ---- each tensor by itself -----------------------------------------------------------------------------------------
MIXED = [f32(3, -4), f16(0.25, "-0.0"), bf16(-48, 20), f32()]
for n in ["L1", "L2", "Linf"]:
    case(f"each {n}: three tensors", "one is below the limit", MIXED, **each(n, 1.0))
    case(f"each {n}: f32's largest and subnormals", "far apart, no tensor sees the other",
         [f32(MAX, -MAX), f32(LEAST, -3 * LEAST), bits("bf16", "0001 7f7f")], **each(n, 2.0**-140))
case("each L1: scale 8, eps 1e-6", "all are divided", MIXED, 8.0, **each("L1", 0.5, 1e-6))
case("each L2: scale 3", "inverse rounded", MIXED, 3.0, **each("L2", 0.5, 1e-6))
case("each L2: limit 0", "a norm of 0 is at the limit", [f32(3, -4), f16("-0.0", 0), f32(), bf16(-1)],
     **each("L2", 0.0))
case("each Linf: no limit", "measured only", MIXED, **each("Linf"))
case("each L2: a NaN in one", "no tensor changes", [f32(3, -4), bits("f16", "7e00 4000"), bf16(8)],
     **each("L2", 1.0))
case("each L2: overflow in one", "no tensor changes, norms are known",
     [f32(2.0**20, 1), bits("f16", "7bff"), bf16(1)], 0.5, **each("L2", 2e5))
case("each L1: what is clipped does not overflow", "a coefficient of its own",
     [f32(MAX, 1), bits("f16", "fbff"), bf16(1)], 0.5, **each("L1", 1000.0))
case("each L1: the least scale", "no factor fits f32", [f32(LEAST, -5 * LEAST), f32(-8 * LEAST), f32()], LEAST,
     **each("L1", 4.0))
case("each L2: at the limit and a unit around", "5 and its neighbours", [f32(3, -4), bits("f32", "40a00001"),
     bits("f32", "c09fffff")], **each("L2", 5.0))
case("each L1: a tie decided in one tensor", "not in the other", [f32(2**24, 1), f32(2**24, 1, 2.0**-50)],
     **each("L1", 2.0**23))
case("each Linf: ties in each format", "coefficients 3/4 but for the last",
     [bits("f32", "49800000 3f800001 3f800003 00000002 00000006"), bits("f16", "3c00 0002 8006 000a"),
      bits("bf16", "c980 3fae 3fb2 bf81 3f83 0002"), bits("f32", "49c00000")], **each("Linf", 786432.0))
case("each L2: both infinities in different tensors", "norms of the others are known",
     [bits("f32", "ff800000"), f32(3, -4), bits("bf16", "3f80 7f80")], 2.0, **each("L2", 1.0))
for what, count in [("two", 2), ("one is too few", 1)]:
    case(f"each L1: f16 below what is kept adds up: {what}", "in the norm of all, not in a tensor's",
         [f32(*TIE), *[f16(2.0**-18)] * count], **each("L1", 2.0**48))


def squares(total):
    """Values of f16 with this sum of squares."""
    values = []
    while total:
        whole = [(min(2047, isqrt(int(total / power(2 * k)))), k) for k in range(5, -25, -1)]
        values.append(next(m * power(k) for m, k in whole if m))
        total -= values[-1] ** 2
    return values


# A tie squared is near 2^34, where the last cell that counts begins at 2^-34.
TIE_SQUARED = power(34 - 48) * ((1 << 24) + 1) ** 2
for what, more in [("alone", []), ("too little below it", [2.0**-18]), ("enough below it", [2.0**-18] * 4)]:
    case(f"each L2: a tie of f16, {what}", "2^-34 decides", [f16(*squares(TIE_SQUARED), *more), bf16(1)],
         **each("L2", 1.0))
case("each L1: no tensors", "the coefficient is 1", [], 2.0, **each("L1", 1.0))
case("each L2: no result below bf16's overflow", "rounds to infinity in bf16 only",
     [bits("bf16", "7f7f"), bits("f32", "7f7f0000")], 1 - 2.0**-8, **each("L2"))

# ---- by value ------------------------------------------------------------------------------------------------------
case("value: 0.5", "torch's clip_grad_value_", [f32(0.25, -0.75, 2, -0.5, "-0.0")], **value(0.5))
case("value: scale 8", "divided, then limited", [f32(24, -32, 2), f16(-24, 1), bf16(64, -4)], 8.0, **value(3.0))
case("value: scale 3", "inverse rounded", [f32(3, -4, 1), f16(1, -3, 1.5), bf16(3, -5)], 3.0, **value(1.0))
case("value: scale 1000", "inverse rounded", [bits("f32", "4411a3d7 c3ff0b1c 42f6e979"), bf16(1024, 3)], 1000.0,
     **value(0.3))
case("value: not in f16 and bf16", "0.1 is rounded down", [f32(1, -1, 0.09375), f16(1, -1, 0.09375),
     bits("f16", "2e66 2e67 ae66"), bf16(1, -1, 0.09375), bits("bf16", "3dcc 3dcd bdcd")], **value(0.1))
case("value: just below what f16 has", "1 less 2^-24", [f32(1, -2), f16(1, -2), bf16(1, -2)], **value(1 - 2.0**-24))
case("value: 0", "0 is a limit; signs stay", [f32(1, -1, "-0.0", LEAST), f16(-2, 1), bf16(-2, 1)], **value(0.0))
case("value: none, scale 4", "divided only", [f32(MAX, -1), bits("f16", "fbff 0001")], 4.0, **value(INF))
case("value: none, f16 overflows", "only without a limit", [f32(1), bits("f16", "7bff")], 0.5, **value(INF))
case("value: none, bf16 overflows", "by its rounding", [f32(1), bits("bf16", "ff7f")], 1 - 2.0**-8, **value(INF))
case("value: f16 would overflow", "ends at the limit", [f32(1), bits("f16", "7bff fbff 3c00")], 0.5, **value(4096.0))
case("value: a limit above f16", "ends at 65504", [f32(1e5), bits("f16", "7bff fbff 3c00")], 0.5, **value(1e9))
case("value: f32's largest, scale 1/2", "ends at the limit", [f32(MAX, -MAX, 1), bits("bf16", "ff7f 7f00")], 0.5,
     **value(MAX))
case("value: a limit above bf16", "MAX is rounded down", [f32(MAX), bits("bf16", "7f7f ff7f")], 0.25, **value(MAX))
case("value: f16 rounds up to the limit", "65512 is stored as 65504", [bits("f16", "7bff 7800")], 1 - 2.0**-13,
     **value(65504.0))
case("value: nothing above", "factor 1, nothing is written", [f32(1, -1), f16(1), bf16(-1)], **value(1.0))
case("value: one element above", "factor 1, and yet something is written",
     [f32(1, -1), f16(1, 0.5), bits("bf16", "bf81")], **value(1.0))
case("value: above in one tensor only", "the others keep their bytes",
     [bits("f32", "00000001 80000001"), f32(2), bits("f32", "007fffff")], **value(1.0))
case("value: the least", "subnormal limit", [f32(1, -1, LEAST, "-0.0", -3 * LEAST, 0), bits("bf16", "0001 8001 3f80"),
     f16(1)], **value(LEAST))
case("value: a subnormal limit", "bf16 rounds it down", [bits("f32", "00012345 80012346 007fffff 80800000"),
     bits("bf16", "0001 8002 0080"), bits("f16", "8001 0400")], **value(0x12345 * LEAST))
case("value: a limit below f16's least", "0 in f16", [f32(1, -1), f16(1, -1), bits("f16", "8001")], **value(1e-8))
case("value: a subnormal limit of f16", "multiples of 2^-24", [f32(1), bits("f16", "0001 8003 0004 03ff bc00")],
     **value(3.7 * 2.0**-24))
case("value: results rounded in f16", "ties, then the limit", [bits("f16", "0001 0003 8005 07ff 3c01 4001")], 2.0,
     **value(1.0))
case("value: results rounded in bf16", "ties in subnormals, then the limit",
     [bits("bf16", "0001 0003 8005 00ff 3f81 4001")], 2.0, **value(1.0))
case("value: scale 2^127", "results are subnormal", [f32(2.0**127, -(2.0**100), 3, LEAST), bf16(-(2.0**127))], 2.0**127,
     **value(0.5))
case("value: the least scale", "no factor fits f32",
     [f32(LEAST, -5 * LEAST, 1, "-0.0", MAX), bits("bf16", "0001 ff7f")], LEAST, **value(2.0**20))
case("value: a NaN", "no tensor changes", [f32(3, -4), bits("bf16", "7fc0"), f16(2)], **value(1.0))
case("value: an infinity", "is not limited", [f32(3, -4), bits("f16", "fc00 4000")], 2.0, **value(1.0))
case("value: no tensors", "nothing to do", [], **value(1.0))
case("value: empty tensors", "nothing to do", [f32(), f16()], 4.0, **value(1.0))
case("value: empty tensors between", "limits are each format's", [f32(), bf16(2), f16(), f16(-2), f32(3)],
     **value(1 + 2.0**-9))


# ---- the file ------------------------------------------------------------------------------------------------------
def number(x):
    return "inf" if x == INF else x


def words(fmt, elements):
    return " ".join(f"{x:0{8 if fmt == 'f32' else 4}x}" for x in elements)


def r24(v):
    if v is None or v == 0:
        return None if v is None else [0, 0]
    exponent = ilog2(v) - 23
    return [int(v / power(exponent)), exponent]


def written(name, source, tensors, scale, told):
    got = step(tensors, scale, **told)
    told = dict(told)
    kind = told.pop("kind")
    if kind == "each tensor":
        told["each_tensor"] = True
    formats = [fmt for fmt, _ in tensors]
    expect = {key: r24(v) if isinstance(v, Fraction) else v for key, v in got.items()}
    expect["tensors"] = [words(fmt, elements) for fmt, elements in zip(formats, got["tensors"])]
    each = expect.pop("each")
    if each is not None:
        expect["each"] = [[r24(n), r24(c)] for n, c in each]
    return {"name": name, "source": source, "scale": scale, **{k: number(v) for k, v in told.items()},
            "tensors": [{"format": fmt, "bits": words(fmt, elements)} for fmt, elements in tensors], "expect": expect}


if __name__ == "__main__":
    names = [c[0] for c in CASES]
    assert len(set(names)) == len(names)
    lines = [json.dumps(written(*c)) for c in CASES]
    Path(__file__).with_name("clips.json").write_text("[\n" + ",\n".join(lines) + "\n]\n")
