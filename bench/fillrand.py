"""Numbers that Go and Python make alike: internal/fillrand has the definition.

Run as a program it prints the first elements of an input, by plain integers:
    python3 fillrand.py SEED INDEX RANK DIMS COUNT [FIRST]
one line each: the hash, the float32 bits, the bfloat16 bits.
"""
import struct
import sys

MASK = 0xFFFFFFFF
SCALE_ONE = struct.unpack("<f", struct.pack("<I", 0x345DB3D7))[0]  # sqrt(3) * 2^-23
SCALE_SMALL = struct.unpack("<f", struct.pack("<I", 0x318DE3BD))[0]  # 0.02 times that


def mix(x):
    """A bijection of 32-bit words; of an int, or in place of an int64 tensor of them."""
    x ^= x >> 16
    x *= 0x7FEB352D
    x &= MASK
    x ^= x >> 15
    x *= 0x846CA68B
    x &= MASK
    x ^= x >> 16
    return x


def keys(seed, index, rank):
    a = mix(mix(seed & MASK) ^ (index + 1 & MASK))
    return a, mix(a + 0x9E3779B9 * (rank + 1) & MASK)


def scale(dims):
    return SCALE_SMALL if dims > 1 else SCALE_ONE


def hash_of(seed, index, rank, element):
    a, b = keys(seed, index, rank)
    return mix(mix(element & MASK ^ a) + b + (element >> 32) & MASK)


def hashes(torch, at, end, seed, index, rank, device):
    """The hashes of elements at to end, as int64."""
    a, b = keys(seed, index, rank)
    h = torch.arange(at, end, dtype=torch.int64, device=device)
    high = h >> 32
    h &= MASK
    h ^= a
    h = mix(h)
    h += b
    h += high
    h &= MASK
    return mix(h)


def fill(torch, shape, dtype, seed, index, rank, device, chunk=1 << 24):
    """A dense tensor of these numbers, made on the device in chunks of int64."""
    n = 1
    for d in shape:
        n *= d
    out = torch.empty(n, dtype=dtype, device=device)
    for at in range(0, n, chunk):
        end = min(n, at + chunk)
        h = hashes(torch, at, end, seed, index, rank, device)
        if dtype.is_floating_point:
            h >>= 8
            h -= 1 << 23
            f = h.to(torch.float32)  # exact: 24 bits
            f *= torch.tensor(scale(len(shape)), dtype=torch.float32, device=device)
            out[at:end] = f.to(dtype)
        elif dtype == torch.bool:
            out[at:end] = h % 2 == 1
        else:
            out[at:end] = (h % 256).to(dtype)
    return out.view(shape)


def main(argv):
    seed, index, rank, dims, count = (int(v) for v in argv[:5])
    first = int(argv[5]) if len(argv) > 5 else 0
    for e in range(first, first + count):
        h = hash_of(seed, index, rank, e)
        # 24 bits by 24 bits fit a double, so packing rounds once.
        f32 = struct.unpack("<I", struct.pack("<f", ((h >> 8) - (1 << 23)) * scale(dims)))[0]
        bf16 = f32 + 0x7FFF + (f32 >> 16 & 1) >> 16
        print(f"{h:08x} {f32:08x} {bf16:04x}")


if __name__ == "__main__":
    main(sys.argv[1:])
