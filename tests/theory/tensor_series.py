"""Truncated tensor series as lists of levels: the algebra that signatures live in, in plain Python."""

import torch


def levels(words, channels):
    """One row of a signature as a list of tensors of shapes (), (c,), (c, c), ..."""
    found, start, power = [torch.ones((), dtype=words.dtype)], 0, channels
    while start < len(words):
        found.append(words[start : start + power].reshape((channels,) * len(found)))
        start, power = start + power, power * channels
    assert start == len(words)
    return found


def flat(tensors):
    return torch.cat([level.flatten() for level in tensors[1:]])


def product(a, b):
    """The product of two truncated tensor series."""
    return [sum(torch.tensordot(a[j], b[k - j], dims=0) for j in range(k + 1)) for k in range(len(a))]


def exponential(x, depth):
    """The signature of a straight line: level k is the k-fold tensor power of x over k!."""
    found = [torch.ones((), dtype=x.dtype)]
    for k in range(1, depth + 1):
        found.append(torch.tensordot(found[-1], x, dims=0) / k)
    return found


def logarithm(series):
    """log(1 + x) = x - x^2 / 2 + x^3 / 3 - ..., power by power."""
    x = [torch.zeros_like(series[0]), *series[1:]]
    power, total = x, x
    for k in range(2, len(series)):
        power = product(power, x)
        total = [a + (-1) ** (k + 1) * b / k for a, b in zip(total, power, strict=True)]
    return total


def tensor_exponential(series):
    """exp(x) = 1 + x + x^2 / 2 + ...; the constant of x is taken as 0."""
    series = [torch.zeros_like(series[0]), *series[1:]]
    total = power = [torch.ones_like(series[0]), *(torch.zeros_like(level) for level in series[1:])]
    for k in range(1, len(series)):
        power = [level / k for level in product(power, series)]
        total = [a + b for a, b in zip(total, power, strict=True)]
    return total
