#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Self-tests of btfsame.py.  Run: python3 test_btfsame.py [-v] [TestClass...]

Encodes and decodes BTF with code of its own (struct based, not btfsame's
parser), so that a reading error in btfsame cannot hide itself.

Real data is used where present and skipped where not:
  BTFSAME_VMLINUX  raw vmlinux BTF (default /sys/kernel/btf/vmlinux; empty: none,
                   which leaves out most of the four minutes)
  BTFSAME_MODULES  directory of raw split BTF, and BTFSAME_BASE their base
                   (no default)
  BTFSAME_SITES    mutated places per kind of mutation and file (default 3)
  BTFSAME_SLOW=1   also the naive refinement over two whole vmlinux BTFs
"""

import contextlib
import gc
import io
import json
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import btfsame as bs        # noqa: E402

TOOL = os.path.join(HERE, "btfsame.py")
SITES = int(os.environ.get("BTFSAME_SITES", "3"))
SLOW = os.environ.get("BTFSAME_SLOW") == "1"

(INT, PTR, ARRAY, STRUCT, UNION, ENUM, FWD, TYPEDEF, VOLATILE, CONST, RESTRICT, FUNC, PROTO,
 VAR, DATASEC, FLOAT, DECL_TAG, TYPE_TAG, ENUM64) = range(1, 20)


def first_there(*paths):
    for p in paths:
        if p and os.path.exists(p):
            return p
    return None


VMLINUX = first_there(os.environ.get("BTFSAME_VMLINUX", "/sys/kernel/btf/vmlinux"))
SECOND = first_there(os.environ.get("BTFSAME_SECOND"))
MODULES = first_there(os.environ.get("BTFSAME_MODULES"))
MODBASE = first_there(os.environ.get("BTFSAME_BASE"))


# --------------------------------------------------------------------------
# A second, independent codec
# --------------------------------------------------------------------------

class T:
    """One type.  ref: type id or None; size or None; x: extra fields.

    x by kind: INT [data], ARRAY [elem, index, n], STRUCT/UNION [[name, type, off]],
    ENUM [[name, val]], ENUM64 [[name, lo, hi]], PROTO [[name, type]],
    VAR [linkage], DATASEC [[type, off, size]], DECL_TAG [idx]
    """
    __slots__ = ("kind", "name", "st", "x", "kflag", "vlen")

    def __init__(self, kind, name="", st=0, x=None, kflag=0, vlen=None):
        self.kind, self.name, self.st, self.kflag = kind, name, st, kflag
        self.x = x if x is not None else []
        self.vlen = vlen        # only when not len(x); linkage of FUNC

    def copy(self):
        return T(self.kind, self.name, self.st,
                 [list(e) if isinstance(e, list) else e for e in self.x], self.kflag, self.vlen)


REF_ST = (PTR, TYPEDEF, VOLATILE, CONST, RESTRICT, FUNC, PROTO, VAR, DECL_TAG, TYPE_TAG)
FMT = {STRUCT: "sII", UNION: "sII", ENUM: "sI", ENUM64: "sII", PROTO: "sI", DATASEC: "III"}
ONE = {INT: 1, ARRAY: 3, VAR: 1, DECL_TAG: 1}
REFPOS = {STRUCT: 1, UNION: 1, PROTO: 1, DATASEC: 0}


def decode(data, base_strs=b"", e="<"):
    """-> list of T (own types), own string section"""
    magic, ver, flags, hlen, toff, tlen, soff, slen = struct.unpack_from(e + "HBBIIIII", data, 0)
    assert magic == 0xeb9f
    strs = data[hlen + soff:hlen + soff + slen]
    both = base_strs + strs
    cache = {}

    def s(o):
        r = cache.get(o)
        if r is None:
            r = cache[o] = both[o:both.index(b"\0", o)].decode("latin-1")
        return r
    out = []
    p, end = hlen + toff, hlen + toff + tlen
    while p < end:
        n, info, st = struct.unpack_from(e + "III", data, p)
        p += 12
        kind, vlen, kf = info >> 24 & 0x1f, info & 0xffff, info >> 31
        t = T(kind, s(n), st, None, kf)
        if kind in FMT:
            f = FMT[kind]
            for _ in range(vlen):
                v = list(struct.unpack_from(e + f.replace("s", "I"), data, p))
                p += 4 * len(f)
                if f[0] == "s":
                    v[0] = s(v[0])
                t.x.append(v)
        elif kind in ONE:
            t.x = list(struct.unpack_from(e + "%dI" % ONE[kind], data, p))
            p += 4 * ONE[kind]
            if vlen:
                t.vlen = vlen
        elif vlen:
            t.vlen = vlen
        out.append(t)
    return out, strs


def remap_all(types, f):
    """Apply f to every type id, in place."""
    for t in types:
        if t.kind in REF_ST:
            t.st = f(t.st)
        if t.kind == ARRAY:
            t.x[0], t.x[1] = f(t.x[0]), f(t.x[1])
        pos = REFPOS.get(t.kind)
        if pos is not None:
            for el in t.x:
                el[pos] = f(el[pos])
    return types


def encode(types, rng=None, e="<", base_strs=b"", start=1, hdr_len=24, layout=False, extra=b"",
           share_base=True, suffix=False):
    """Encode; with rng the string table is in random order (and with holes)."""
    names = []
    for t in types:
        names.append(t.name)
        if t.kind in FMT and FMT[t.kind][0] == "s":
            names += [el[0] for el in t.x]
    uniq = sorted(set(names) - {""})
    if rng:
        rng.shuffle(uniq)
    offs = {"": 0}
    start_str = len(base_strs)
    buf = bytearray(b"" if start_str else b"\0")
    pos = {}
    if start_str and share_base:
        p = 0
        for part in base_strs.split(b"\0"):
            pos.setdefault(part, p)
            p += len(part) + 1
    for n in uniq:
        b = n.encode("latin-1")
        if b in pos and not (rng and rng.random() < 0.3):
            offs[n] = pos[b]
            continue
        if rng and rng.random() < 0.02:
            buf += b"unused_%d\0" % rng.randrange(999)
        if suffix and rng and rng.random() < 0.1:
            buf += b"prefix"        # name is the tail of a longer string
        offs[n] = start_str + len(buf)
        buf += b + b"\0"
    w = []
    for t in types:
        vlen = t.vlen if t.vlen is not None else len(t.x) if t.kind in FMT else 0
        w += [offs[t.name], (t.kflag << 31 | t.kind << 24 | vlen), t.st]
        if t.kind in FMT:
            for el in t.x:
                w += [offs[el[0]]] + el[1:] if FMT[t.kind][0] == "s" else el
        elif t.kind in ONE:
            w += t.x
    ts = struct.pack(e + "%dI" % len(w), *[v & 0xffffffff for v in w])
    lay = b""
    if layout:
        hdr_len = max(hdr_len, 32)
        for k in range(20):
            fx = 4 * ONE.get(k, 0)
            el = 4 * len(FMT[k]) if k in FMT else 0
            lay += struct.pack(e + "BBH", fx, el, 0)
    h = struct.pack(e + "HBBIIIII", 0xeb9f, 1, 0, hdr_len, 0, len(ts), len(ts) + len(lay), len(buf))
    if hdr_len >= 32:
        h += struct.pack(e + "II", len(ts) if lay else 0, len(lay))
    h = h.ljust(hdr_len, b"\0")
    return h + ts + lay + bytes(buf) + extra


def shuffled(types, rng, start=1):
    """Same types in random order, ids adapted."""
    order = list(range(len(types)))
    rng.shuffle(order)
    new = {start + o: start + i for i, o in enumerate(order)}
    return remap_all([types[o].copy() for o in order], lambda i: new.get(i, i))


def delete(types, i, start=1):
    """Without type number i; nothing may refer to it."""
    gone = start + i
    return remap_all([t.copy() for j, t in enumerate(types) if j != i],
                     lambda r: r - 1 if r > gone else r)


def used_ids(types):
    used = set()
    remap_all([t.copy() for t in types], lambda r: used.add(r) or r)
    return used


# --------------------------------------------------------------------------
# A file with every kind
# --------------------------------------------------------------------------

def zoo():
    L = []

    def add(*a, **k):
        L.append(T(*a, **k))
        return len(L)
    i32 = add(INT, "int", 4, [1 << 24 | 32])
    u32 = add(INT, "unsigned int", 4, [32])
    ch = add(INT, "char", 1, [1 << 24 | 8])
    lng = add(INT, "long", 8, [1 << 24 | 64])
    boo = add(INT, "_Bool", 1, [4 << 24 | 8])
    add(FLOAT, "double", 8)
    arr = add(ARRAY, "", 0, [i32, u32, 10])
    arr2 = add(ARRAY, "", 0, [arr, u32, 3])
    pch = add(PTR, "", ch)
    cch = add(CONST, "", ch)
    pcch = add(PTR, "", cch)
    vol = add(VOLATILE, "", i32)
    pvol = add(PTR, "", vol)
    res = add(RESTRICT, "", pcch)
    tag = add(TYPE_TAG, "user", i32)
    ptag = add(PTR, "", tag)
    fwd_s = add(FWD, "opaque", 0)
    pfwd = add(PTR, "", fwd_s)
    add(FWD, "uopaque", 0, kflag=1)
    node = add(STRUCT, "node", 24)              # node <-> list, and to itself
    lst = add(STRUCT, "list", 16)
    pnode = add(PTR, "", node)
    plist = add(PTR, "", lst)
    L[node - 1].x = [["next", pnode, 0], ["owner", plist, 64], ["value", i32, 128]]
    L[lst - 1].x = [["head", pnode, 0], ["len", lng, 64]]
    inner = add(UNION, "", 8, [["a", i32, 0], ["b", lng, 0], ["", 0, 0]][:2])
    e32 = add(ENUM, "color", 4, [["RED", 0], ["GREEN", 1], ["BLUE", 7]])
    e32s = add(ENUM, "sign", 4, [["NEG", 0xffffffff], ["POS", 1]], kflag=1)
    e64 = add(ENUM64, "big", 8, [["LO", 5, 0], ["HI", 0, 1]])
    mix = add(STRUCT, "mix", 88, [["name", pcch, 0], ["", inner, 64], ["arr", arr, 128],
                                  ["col", e32, 448], ["big", e64, 512], ["w", pvol, 576],
                                  ["flag", boo, 640]])
    bits = add(STRUCT, "bits", 8, [["a", u32, 3 << 24 | 0], ["b", u32, 5 << 24 | 3],
                                   ["c", i32, 32]], kflag=1)
    # two structs of the same name, and users that differ only in which one
    dup1 = add(STRUCT, "twin", 4, [["x", i32, 0]])
    dup2 = add(STRUCT, "twin", 8, [["x", lng, 0]])
    pd1 = add(PTR, "", dup1)
    pd2 = add(PTR, "", dup2)
    add(STRUCT, "user1", 8, [["p", pd1, 0]])
    add(STRUCT, "user2", 8, [["p", pd2, 0]])
    td = add(TYPEDEF, "node_t", node)
    add(TYPEDEF, "num_t", i32)
    add(TYPEDEF, "tags_t", arr2)
    ptd = add(PTR, "", td)
    fn1 = add(PROTO, "", i32, [["n", ptd], ["name", pcch], ["v", e32]])
    fn2 = add(PROTO, "", 0, [["fmt", res], ["", 0]])
    fn3 = add(PROTO, "", pnode, [["m", pd1], ["o", pfwd], ["t", ptag], ["s", e32s]])
    pfn = add(PTR, "", fn1)
    add(STRUCT, "ops", 16, [["open", pfn, 0], ["priv", pch, 64]])
    add(UNION, "any", 8, [["i", i32, 0], ["p", pnode, 0]])
    f1 = add(FUNC, "do_node", fn1, vlen=1)
    f2 = add(FUNC, "print", fn2, vlen=0)
    f3 = add(FUNC, "get", fn3, vlen=0)
    v1 = add(VAR, "counter", i32, [0])
    v2 = add(VAR, "the_list", lst, [1])
    v3 = add(VAR, "small", boo, [1])
    add(DATASEC, ".data", 64, [[v1, 0, 4], [v2, 8, 16], [v3, 24, 1]])
    add(DECL_TAG, "kfunc", f1, [0xffffffff])
    add(DECL_TAG, "arg", f1, [1])
    add(DECL_TAG, "member", mix, [2])
    add(DECL_TAG, "onvar", v1, [0xffffffff])
    add(DECL_TAG, "ontd", td, [0xffffffff])
    add(DECL_TAG, "fast", f2, [0xffffffff], kflag=1)
    assert bits and f3
    return L


# --------------------------------------------------------------------------
# Mutations
# --------------------------------------------------------------------------

def setUpModule():
    gc.disable()        # as in btfsame.main(): twice as fast


def tearDownModule():
    gc.enable()


class Ctx:
    """What mutators need about a file: all types by id, with a base."""

    def __init__(self, types, start=1, base=None):
        self.start, self.base, self.own = start, base, types

    def get(self, tid):
        if tid == 0:
            return T(0, "void")
        return self.own[tid - self.start] if tid >= self.start else self.base[tid - 1]

    def text(self, tid, depth=0):
        """Own textual idea of a type, to know that two are not the same.
        Named types by kind, name, size and number of elements only."""
        t = self.get(tid)
        if t.kind == 0:
            return "void"
        if depth > 8:
            return "?"
        if t.name and t.kind not in (TYPE_TAG,):
            return "%d:%s:%d:%d" % (t.kind, t.name, 0 if t.kind in REF_ST else t.st, len(t.x))
        r = "%d/%d/%s/%d(" % (t.kind, t.kflag, t.name, 0 if t.kind in REF_ST else t.st)
        if t.kind in REF_ST:
            r += self.text(t.st, depth + 1)
        if t.kind == ARRAY:
            r += self.text(t.x[0], depth + 1) + ",%d" % t.x[2]
        if t.kind in FMT:
            for el in t.x[:20]:
                r += ";" + ",".join(self.text(v, depth + 1) if j == REFPOS.get(t.kind) else str(v)
                                    for j, v in enumerate(el))
        return r + ")"


def other_id(ctx, rng, tid, ok):
    """A type id whose text differs from that of tid."""
    mine = ctx.text(tid)
    ids = list(range(ctx.start, ctx.start + len(ctx.own)))
    if ctx.base:
        ids += [rng.randrange(1, ctx.start) for _ in range(200)]
    for _ in range(300):
        c = rng.choice(ids)
        if ok(ctx.get(c)) and ctx.text(c) != mine:
            return c
    return None


VALUE = (INT, PTR, STRUCT, UNION, ENUM, FLOAT, ENUM64, TYPEDEF)
MUTATORS = {}


def mutator(*kinds, where=None):
    """Register f(ctx, t, i, rng) which changes t (number i) of the copy
    ctx.own in place and returns True, or a new list of types, or None."""
    def reg(f):
        MUTATORS[f.__name__] = (kinds, where, f)
        return f
    return reg


AGG = (STRUCT, UNION)
has_x = lambda t: bool(t.x)                      # noqa: E731


@mutator(STRUCT, where=has_x)
def member_offset(ctx, t, i, rng):
    rng.choice(t.x)[2] ^= 8
    return True


@mutator(STRUCT, where=lambda t: t.kflag and any(m[2] >> 24 for m in t.x))
def bitfield_size(ctx, t, i, rng):
    m = rng.choice([m for m in t.x if m[2] >> 24])
    m[2] ^= 0x40 << 24
    return True


@mutator(*AGG)
def struct_size(ctx, t, i, rng):
    t.st += rng.choice((1, 4, 8))
    return True


@mutator(*AGG, where=lambda t: any(m[0] for m in t.x))
def member_rename(ctx, t, i, rng):
    rng.choice([m for m in t.x if m[0]])[0] += "_"
    return True


@mutator(*AGG, where=has_x)
def member_type(ctx, t, i, rng):
    m = rng.choice(t.x)
    m[1] = other_id(ctx, rng, m[1], lambda c: c.kind in VALUE) or m[1]
    return m[1]


@mutator(*AGG, where=has_x)
def member_drop(ctx, t, i, rng):
    t.x.pop(rng.randrange(len(t.x)))
    return True


@mutator(*AGG, where=lambda t: len({tuple(m) for m in t.x}) > 1)
def member_order(ctx, t, i, rng):
    a, b = rng.sample(range(len(t.x)), 2)
    t.x[a], t.x[b] = t.x[b], t.x[a]
    return t.x[a] != t.x[b]


@mutator(*AGG, where=lambda t: t.name)
def struct_rename(ctx, t, i, rng):
    t.name += "_"
    return True


@mutator(*AGG)
def struct_kflag(ctx, t, i, rng):
    t.kflag ^= 1
    return True


@mutator(*AGG)
def struct_vs_union(ctx, t, i, rng):
    t.kind = UNION if t.kind == STRUCT else STRUCT
    return True


@mutator(*AGG, where=lambda t: t.name)
def full_to_fwd(ctx, t, i, rng):
    t.kflag = int(t.kind == UNION)
    t.kind, t.st, t.x = FWD, 0, []
    return True


@mutator(FWD)
def fwd_to_full(ctx, t, i, rng):
    t.kind, t.kflag = (UNION if t.kflag else STRUCT), 0
    return True


@mutator(FWD)
def fwd_kind(ctx, t, i, rng):
    t.kflag ^= 1
    return True


@mutator(INT)
def int_encoding(ctx, t, i, rng):
    t.x[0] ^= rng.choice((1, 2, 4)) << 24
    return True


@mutator(INT)
def int_bits(ctx, t, i, rng):
    t.x[0] ^= 1
    return True


@mutator(INT)
def int_offset(ctx, t, i, rng):
    t.x[0] ^= 1 << 16
    return True


@mutator(INT, FLOAT)
def base_size(ctx, t, i, rng):
    t.st *= 2
    return True


@mutator(INT, FLOAT, TYPEDEF, FUNC, VAR, FWD, DATASEC, where=lambda t: t.name)
def rename(ctx, t, i, rng):
    t.name += "_"
    return True


@mutator(ENUM, ENUM64, where=has_x)
def enum_value(ctx, t, i, rng):
    el = rng.choice(t.x)
    el[rng.randrange(1, len(el))] ^= 1 << rng.randrange(31)
    return True


@mutator(ENUM, ENUM64, where=has_x)
def enum_value_rename(ctx, t, i, rng):
    rng.choice(t.x)[0] += "_"
    return True


@mutator(ENUM, ENUM64)
def enum_sign(ctx, t, i, rng):
    t.kflag ^= 1
    return True


@mutator(ENUM, ENUM64, where=has_x)
def enum_drop(ctx, t, i, rng):
    t.x.pop(rng.randrange(len(t.x)))
    return True


@mutator(ENUM, where=lambda t: t.name)
def enum_to_enum64(ctx, t, i, rng):
    t.kind = ENUM64
    t.x = [[n, v, 0] for n, v in t.x]
    return True


@mutator(PROTO, where=has_x)
def param_type(ctx, t, i, rng):
    p = rng.choice(t.x)
    new = other_id(ctx, rng, p[1], lambda c: c.kind in VALUE)
    p[1] = new or p[1]
    return new


@mutator(PROTO, where=has_x)
def param_type_through_pointer(ctx, t, i, rng):
    """The pointer that a parameter has gets another target, in place."""
    ps = [p for p in t.x if p[1] >= ctx.start and ctx.get(p[1]).kind == PTR]
    if not ps:
        return None
    ptr = ctx.get(rng.choice(ps)[1])
    new = other_id(ctx, rng, ptr.st, lambda c: c.kind in VALUE)
    ptr.st = new or ptr.st
    return new


@mutator(PROTO, where=lambda t: any(p[0] for p in t.x))
def param_rename(ctx, t, i, rng):
    rng.choice([p for p in t.x if p[0]])[0] += "_"
    return True


@mutator(PROTO)
def param_add(ctx, t, i, rng):
    t.x.append(["extra", 1])
    return True


@mutator(PROTO, where=has_x)
def param_drop(ctx, t, i, rng):
    t.x.pop(rng.randrange(len(t.x)))
    return True


@mutator(PROTO)
def return_type(ctx, t, i, rng):
    new = other_id(ctx, rng, t.st, lambda c: c.kind in VALUE)
    t.st = t.st if new is None else new
    return new


@mutator(FUNC, DECL_TAG, DATASEC)
def drop_type(ctx, t, i, rng):
    if ctx.start + i in used_ids(ctx.own):
        return None
    return delete(ctx.own, i, ctx.start)


@mutator(FUNC, STRUCT, INT, PTR, PROTO, DECL_TAG, CONST)
def copy_of_type(ctx, t, i, rng):
    return ctx.own + [t.copy()]


@mutator(FUNC)
def func_linkage(ctx, t, i, rng):
    t.vlen = 1 - min(1, t.vlen or 0)
    return True


@mutator(FUNC)
def func_proto(ctx, t, i, rng):
    new = other_id(ctx, rng, t.st, lambda c: c.kind == PROTO)
    t.st = new or t.st
    return new


@mutator(VAR)
def var_linkage(ctx, t, i, rng):
    t.x[0] ^= 1
    return True


@mutator(VAR)
def var_type(ctx, t, i, rng):
    new = other_id(ctx, rng, t.st, lambda c: c.kind in VALUE)
    t.st = new or t.st
    return new


@mutator(DATASEC, where=has_x)
def datasec_offset(ctx, t, i, rng):
    rng.choice(t.x)[1] ^= 1
    return True


@mutator(DATASEC, where=has_x)
def datasec_entry_size(ctx, t, i, rng):
    rng.choice(t.x)[2] += 1
    return True


@mutator(DATASEC)
def datasec_size(ctx, t, i, rng):
    t.st += 8
    return True


@mutator(DATASEC, where=has_x)
def datasec_drop_entry(ctx, t, i, rng):
    t.x.pop(rng.randrange(len(t.x)))
    return True


@mutator(DATASEC, where=lambda t: len(t.x) > 1)
def datasec_swap_vars(ctx, t, i, rng):
    a, b = rng.sample(range(len(t.x)), 2)
    t.x[a][0], t.x[b][0] = t.x[b][0], t.x[a][0]
    return ctx.text(t.x[a][0]) != ctx.text(t.x[b][0])


@mutator(DECL_TAG)
def decl_tag_component(ctx, t, i, rng):
    t.x[0] = (t.x[0] + 1) & 0xffffffff
    return True


@mutator(DECL_TAG, TYPE_TAG)
def tag_value(ctx, t, i, rng):
    t.name += "2"
    return True


@mutator(DECL_TAG, TYPE_TAG)
def tag_kflag(ctx, t, i, rng):
    t.kflag ^= 1
    return True


@mutator(DECL_TAG)
def decl_tag_target(ctx, t, i, rng):
    new = other_id(ctx, rng, t.st, lambda c: c.kind in (FUNC, VAR, STRUCT, TYPEDEF))
    t.st = new or t.st
    return new


@mutator(ARRAY)
def array_length(ctx, t, i, rng):
    t.x[2] += rng.choice((1, 16))
    return True


@mutator(ARRAY)
def array_element(ctx, t, i, rng):
    new = other_id(ctx, rng, t.x[0], lambda c: c.kind in VALUE)
    t.x[0] = new or t.x[0]
    return new


@mutator(ARRAY)
def array_index(ctx, t, i, rng):
    new = other_id(ctx, rng, t.x[1], lambda c: c.kind == INT)
    t.x[1] = new or t.x[1]
    return new


@mutator(TYPEDEF, PTR, CONST, VOLATILE, RESTRICT, TYPE_TAG)
def ref_target(ctx, t, i, rng):
    new = other_id(ctx, rng, t.st, lambda c: c.kind in VALUE)
    t.st = t.st if new is None else new
    return new


@mutator(CONST, VOLATILE, RESTRICT)
def modifier_kind(ctx, t, i, rng):
    t.kind = {CONST: VOLATILE, VOLATILE: RESTRICT, RESTRICT: CONST}[t.kind]
    return True


@mutator(PTR)
def pointer_to_const(ctx, t, i, rng):
    t.kind = CONST
    return True


@mutator(STRUCT, where=lambda t: len(t.x) > 1)
def swap_member_types(ctx, t, i, rng):
    """Two references of the same kind of one struct change places."""
    by = {}
    for m in t.x:
        by.setdefault(ctx.get(m[1]).kind, []).append(m)
    for ms in by.values():
        for a in range(len(ms)):
            for b in range(a):
                if ctx.text(ms[a][1]) != ctx.text(ms[b][1]) and ms[a][0] != ms[b][0]:
                    ms[a][1], ms[b][1] = ms[b][1], ms[a][1]
                    return True
    return None


@mutator(TYPEDEF, FUNC, VAR)
def swap_references(ctx, t, i, rng):
    """Two types of the same kind exchange what they refer to."""
    js = [j for j, o in enumerate(ctx.own) if o.kind == t.kind and j != i and o.name != t.name]
    rng.shuffle(js)
    for j in js[:50]:
        o = ctx.own[j]
        if ctx.text(o.st) != ctx.text(t.st):
            o.st, t.st = t.st, o.st
            return True
    return None


@mutator(PTR)
def swap_pointer_targets(ctx, t, i, rng):
    """Targets of two pointers exchanged; named types use both."""
    users = {}
    for o in ctx.own:
        if o.kind == STRUCT and o.name:
            for m in o.x:
                users.setdefault(m[1], set()).add((o.name, m[0]))
    js = [j for j, o in enumerate(ctx.own) if o.kind == PTR and j != i and
          users.get(ctx.start + j)]
    if not users.get(ctx.start + i) or not js:
        return None
    rng.shuffle(js)
    for j in js[:50]:
        o = ctx.own[j]
        if ctx.text(o.st) != ctx.text(t.st) and not \
                users[ctx.start + i] & users[ctx.start + j]:
            o.st, t.st = t.st, o.st
            return True
    return None


@mutator(STRUCT, where=lambda t: t.name in ("user1", "user2"))
def same_name_other_struct(ctx, t, i, rng):
    """A pointer to one struct twin becomes a pointer to the other one; both
    pointers and both structs are in the file before and after."""
    for j, o in enumerate(ctx.own):
        tid = ctx.start + j
        if o.kind == PTR and ctx.get(o.st).name == "twin" and tid != t.x[0][1]:
            t.x[0][1] = tid
            return True
    return None


def mutate(types, name, rng, start=1, base=None):
    """A mutated copy, or None when there is no place for it."""
    kinds, where, f = MUTATORS[name]
    places = [i for i, t in enumerate(types) if t.kind in kinds and (not where or where(t))]
    for _ in range(12 if len(types) < 10000 else 3):
        if not places:
            return None
        i = rng.choice(places)
        new = [t.copy() for t in types]
        r = f(Ctx(new, start, base), new[i], i, rng)
        if r:
            return r if isinstance(r, list) else new
    return None


# --------------------------------------------------------------------------
# Helpers to run btfsame
# --------------------------------------------------------------------------

def read(data, base=None):
    return bs.Btf(data, base, "mem", 0, "raw")


def equal(a, b, u=None, **kw):
    u = u or bs.Universe()
    return bs.Comparison(u, a, b, **kw).equal


class Timeout(Exception):
    pass


@contextlib.contextmanager
def limit(seconds):
    def on(sig, frame):
        raise Timeout()
    old = signal.signal(signal.SIGALRM, on)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, old)


def run_main(*argv):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            rc = bs.main(list(argv))
        except SystemExit as e:
            rc = e.code
    return rc, out.getvalue(), err.getvalue()


def elf(sections, cls=2, e="<"):
    """Tiny ELF file with the given sections."""
    names = b"\0"
    heads = []
    body = b""
    base = 64 if cls == 2 else 52
    for n, d in list(sections.items()) + [(".shstrtab", None)]:
        no = len(names)
        names += n.encode() + b"\0"
        heads.append((no, d))
    rows = [(0, 0, 0, 0)]
    for no, d in heads:
        if d is None:
            d = names
        body += b"\0" * (-(base + len(body)) % 4)
        rows.append((no, 1 if d is not names else 3, base + len(body), len(d)))
        body += d
    body += b"\0" * (-(base + len(body)) % 8)
    shoff = base + len(body)
    ident = b"\x7fELF" + bytes([cls, 1 if e == "<" else 2, 1]) + b"\0" * 9
    n = len(rows)
    if cls == 2:
        h = ident + struct.pack(e + "HHIQQQIHHHHHH", 1, 62, 1, 0, 0, shoff, 0, 64, 0, 0, 64, n, n - 1)
        sh = b"".join(struct.pack(e + "IIQQQQIIQQ", a, t, 0, 0, o, s, 0, 0, 1, 0)
                      for a, t, o, s in rows)
    else:
        h = ident + struct.pack(e + "HHIIIIIHHHHHH", 1, 3, 1, 0, 0, shoff, 0, 52, 0, 0, 40, n, n - 1)
        sh = b"".join(struct.pack(e + "10I", a, t, 0, 0, o, s, 0, 0, 1, 0) for a, t, o, s in rows)
    return h + body + sh


def raw_of(path):
    with open(path, "rb") as f:
        return f.read()


class Files(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="btfsame-test-")
        self.addCleanup(shutil.rmtree, self.dir, True)
        bs._bases.clear()

    def put(self, name, data):
        p = os.path.join(self.dir, name)
        os.makedirs(os.path.dirname(p), exist_ok=True)
        with open(p, "wb") as f:
            f.write(data)
        return p


# --------------------------------------------------------------------------
# Tests
# --------------------------------------------------------------------------

class TestSame(Files):
    def test_shuffle_is_equal(self):
        types = zoo()
        a = read(encode(types))
        want = bs.digest_of(a)
        for seed in range(60):
            rng = random.Random(seed)
            data = encode(shuffled(types, rng), rng, e=rng.choice("<>"), layout=rng.random() < .5,
                          hdr_len=rng.choice((24, 32, 40)), suffix=True)
            b = read(data)
            self.assertTrue(equal(a, b), seed)
            self.assertEqual(bs.digest_of(b), want)

    def test_counts(self):
        c = bs.Comparison(bs.Universe(), read(encode(zoo())), read(encode(zoo())))
        self.assertEqual(set(c.kinds), set(range(1, 20)))
        self.assertEqual(c.totals()[:3], [len(zoo())] * 3)

    def test_elf(self):
        types = zoo()
        raw = self.put("raw", encode(types))
        for cls in (1, 2):
            for e in "<>":
                p = self.put("e%d%s" % (cls, "lb"[e == ">"]),
                             elf({".text": b"x" * 7, ".BTF": encode(types, e=e)}, cls, e))
                rc, out, err = run_main("compare", raw, p)
                self.assertEqual((rc, err), (0, ""), out)
                self.assertIn("EQUAL", out)
                rc, out, err = run_main("check", p)
                self.assertEqual(rc, 0, out + err)
                self.assertIn("pointer size %d" % (4 * cls), out)

    def test_split_and_distilled(self):
        base = zoo()
        bdata = encode(base)
        bstr = decode(bdata)[1]
        st = len(base) + 1
        node = next(i for i, t in enumerate(base) if t.name == "node") + 1
        split = [T(PTR, "", st + 1), T(STRUCT, "mod", 16, [["n", node, 0], ["self", st, 64]]),
                 T(PROTO, "", 1, [["m", st]]), T(FUNC, "mod_init", st + 2, vlen=0)]
        split[1].st = 32
        split[1].x[1][2] = 192
        b0 = self.put("base", bdata)
        files = []
        for seed in range(4):
            rng = random.Random(seed)
            s = shuffled(split, rng, st)
            files.append(self.put("s%d" % seed, encode(s, rng, base_strs=bstr, start=st)))
        for f in files:
            self.assertEqual(run_main("compare", files[0], f, "--base", b0)[0], 0)
            self.assertEqual(run_main("check", f, "--base", b0)[0], 0)
        d = run_main("digest", "--base", b0, *files)[1]
        self.assertEqual(len({line.split()[0] for line in d.splitlines()}), 1)
        # the base in another order: the same too
        rng = random.Random(9)
        order = list(range(len(base)))
        rng.shuffle(order)
        new = {o + 1: i + 1 for i, o in enumerate(order)}
        base2 = remap_all([base[o].copy() for o in order], lambda i: new.get(i, i))
        bdata2 = encode(base2, rng)
        s2 = remap_all([t.copy() for t in split], lambda i: new.get(i, i))
        f2 = self.put("s-other", encode(s2, rng, base_strs=decode(bdata2)[1], start=st))
        b2 = self.put("base2", bdata2)
        self.assertEqual(run_main("compare", files[0], f2, "--base-a", b0, "--base-b", b2)[0], 0)
        self.assertEqual(run_main("digest", "--base", b2, f2)[1].split()[0], d.split()[0])
        # wrong base: not equal or not readable, never equal
        self.assertIn(run_main("compare", files[0], f2, "--base", b0)[0], (1, 2))
        # without base: bad input
        self.assertEqual(run_main("compare", files[0], files[1])[0], 2)
        # distilled
        e1 = self.put("d1", elf({".BTF": raw_of(files[0]), ".BTF.base": bdata}))
        e2 = self.put("d2", elf({".BTF": raw_of(f2), ".BTF.base": bdata2}, 2, "<"))
        rc, out, err = run_main("compare", e1, e2)
        self.assertEqual(rc, 0, out + err)
        self.assertEqual(run_main("check", e1)[0], 0)
        # a change in .BTF.base alone is seen
        base3 = [t.copy() for t in base]
        next(t for t in base3 if t.name == "uopaque").kflag = 0
        e3 = self.put("d3", elf({".BTF": raw_of(files[0]), ".BTF.base": encode(base3)}))
        self.assertEqual(run_main("compare", e1, e3)[0], 1)

    def test_options(self):
        types = zoo()
        a = self.put("a", encode(types))

        def with_(name):
            for seed in range(50):
                m = mutate(types, name, random.Random(seed))
                if m:
                    return self.put(name, encode(m))
        b = with_("param_rename")
        self.assertEqual(run_main("compare", a, b)[0], 1)
        self.assertEqual(run_main("compare", a, b, "--ignore-param-names")[0], 0)
        da, db = (run_main("digest", f, "--ignore-param-names")[1].split()[0] for f in (a, b))
        self.assertEqual(da, db)
        b = with_("decl_tag_component")
        self.assertEqual(run_main("compare", a, b)[0], 1)
        self.assertEqual(run_main("compare", a, b, "--ignore", "decl_tag")[0], 0)
        self.assertEqual(run_main("compare", a, b, "--ignore", "FUNC,VAR")[0], 1)
        self.assertEqual(run_main("compare", a, b, "--ignore", "NOPE")[0], 2)
        # a type tag between a pointer and its target
        m = [t.copy() for t in types]
        tag = next(i for i, t in enumerate(m) if t.kind == TYPE_TAG)
        for t in m:
            if t.kind == PTR and t.st == tag + 1:
                t.st = m[tag].st
        m = delete(m, tag)
        b = self.put("notag", encode(m))
        self.assertEqual(run_main("compare", a, b)[0], 1)
        self.assertEqual(run_main("compare", a, b, "--ignore", "TYPE_TAG")[0], 0)
        # copies
        b = self.put("copies", encode(types + [types[0].copy()]))
        self.assertEqual(run_main("compare", a, b)[0], 1)
        self.assertEqual(run_main("compare", a, b, "--set")[0], 0)
        # arrays of arrays
        m = [t.copy() for t in types]
        a1 = next(i for i, t in enumerate(m) if t.kind == ARRAY) + 1
        a2 = next(t for t in m if t.kind == ARRAY and t.x[0] == a1)
        a2.x = [m[a1 - 1].x[0], m[a1 - 1].x[1], 30]
        b = self.put("flat", encode(m))
        self.assertEqual(run_main("compare", a, b)[0], 1)
        self.assertEqual(run_main("compare", a, b, "--flatten-arrays")[0], 0)
        a2.x[2] = 31
        b = self.put("flat31", encode(m))
        self.assertEqual(run_main("compare", a, b, "--flatten-arrays")[0], 1)

    def test_fwd_is_no_wildcard(self):
        full = [T(INT, "int", 4, [1 << 24 | 32]), T(STRUCT, "s", 4, [["x", 1, 0]]),
                T(PTR, "", 2), T(STRUCT, "u", 8, [["p", 3, 0]])]
        fwd = full + [T(FWD, "s", 0), T(PTR, "", 5), T(STRUCT, "u", 8, [["p", 6, 0]])]
        both = [full[0], full[1], full[2], full[3], fwd[4], fwd[5], fwd[6]]
        a, b = read(encode(both)), read(encode(both))
        self.assertTrue(equal(a, b))
        one = [t.copy() for t in both]
        one[6].x[0][1] = 3              # both u use the full definition
        c = bs.Comparison(bs.Universe(), a, read(encode(one)))
        self.assertFalse(c.equal)
        text = json.dumps(c.result(20))
        self.assertIn("fwd", text)

    def test_reasons(self):
        """Each mutated type is named, with a fitting reason."""
        words = {"member_offset": "bit offset", "struct_size": "size", "int_encoding": "encoding",
                 "enum_value": "value", "func_linkage": "linkage", "array_length": "",
                 "member_rename": "member", "param_add": "parameters",
                 "full_to_fwd": "FWD vs full", "datasec_offset": "offset",
                 "decl_tag_component": "component", "fwd_kind": "forward of",
                 "return_type": "returned type", "var_linkage": "linkage"}
        types = zoo()
        a = read(encode(types))
        for name, word in words.items():
            for seed in range(4):
                m = mutate(types, name, random.Random(seed))
                c = bs.Comparison(bs.Universe(), a, read(encode(m)))
                r = c.result(20)
                self.assertTrue(r["differences"], name)
                self.assertIn(word, json.dumps([d["reasons"] for d in r["differences"]]), name)

    def test_summary(self):
        types = zoo()
        m = [t for t in types]
        i = next(i for i, t in enumerate(types) if t.kind == FUNC and t.name == "get")
        m = delete(types, i)
        s = next(t for t in m if t.name == "mix")
        s.x[1][2] += 8
        f = next(t for t in m if t.kind == FUNC and t.name == "print")
        f.vlen = 1
        r = bs.Comparison(bs.Universe(), read(encode(types)), read(encode(m))).result(20)
        self.assertEqual(r["functions"]["only_a"], ["get"])
        self.assertEqual(r["functions"]["only_b"], [])
        self.assertEqual(r["functions"]["differ"], ["print"])
        self.assertEqual(r["structs"]["layout_differs"], ["mix"])
        json.dumps(r)


class TestMutations(unittest.TestCase):
    """Every single change must be reported."""

    tally = {}

    def one(self, a, types, mutated, name, rng, start, base, base_strs, basebtf, u, deep=True):
        data = encode(shuffled(mutated, rng, start), rng, base_strs=base_strs, start=start)
        b = read(data, basebtf)
        c = bs.Comparison(u, a, b)
        self.assertFalse(c.equal, "%s was not seen" % name)
        if deep:
            r = c.result(5)
            self.assertTrue(r["differences"], name)
            self.assertTrue(all(d["reasons"] for d in r["differences"]), name)
        return b

    def test_zoo(self):
        types = zoo()
        a = read(encode(types))
        da = bs.digest_of(a)
        n = 0
        for name in MUTATORS:
            hits = 0
            for seed in range(25):
                rng = random.Random("%s%d" % (name, seed))
                m = mutate(types, name, rng)
                if m is None:
                    continue
                hits += 1
                b = self.one(a, types, m, name, rng, 1, None, b"", None, bs.Universe())
                self.assertNotEqual(bs.digest_of(b), da, name)
                # and it equals itself after shuffling
                again = read(encode(shuffled(m, rng), rng))
                self.assertTrue(equal(b, again), name)
                self.assertEqual(bs.digest_of(b), bs.digest_of(again))
            self.assertTrue(hits, "%s has no place in the zoo" % name)
            n += hits
        self.tally["zoo"] = n
        print("  zoo: %d mutations of %d kinds caught" % (n, len(MUTATORS)), file=sys.stderr)

    @unittest.skipUnless(MODULES and MODBASE, "no module BTF")
    def test_modules(self):
        with open(MODBASE, "rb") as f:
            bdata = f.read()
        base, bstr = decode(bdata)
        basebtf = read(bdata)
        u0 = bs.Universe()
        u0.add(basebtf)
        names = sorted(os.listdir(MODULES))[:12]
        n = same = 0
        kinds = set()
        for fn in names:
            with open(os.path.join(MODULES, fn), "rb") as f:
                data = f.read()
            a = read(data, basebtf)
            types, _ = decode(data, bstr)
            start = len(base) + 1
            rng = random.Random(fn)
            b = read(encode(shuffled(types, rng, start), rng, base_strs=bstr, start=start), basebtf)
            self.assertTrue(equal(a, b, u0.child()), fn)
            same += 1
            for name in MUTATORS:
                for s in range(SITES):
                    rng = random.Random("%s%s%d" % (fn, name, s))
                    m = mutate(types, name, rng, start, base)
                    if m is not None:
                        self.one(a, types, m, fn + " " + name, rng, start, base, bstr, basebtf,
                                 u0.child())
                        n += 1
                        kinds.add(name)
        print("  %d modules: %d mutations of %d kinds caught" % (same, n, len(kinds)),
              file=sys.stderr)

    @unittest.skipUnless(VMLINUX, "no vmlinux BTF")
    def test_vmlinux(self):
        with open(VMLINUX, "rb") as f:
            data = f.read()
        types, _ = decode(data)
        a = read(data)
        u0 = bs.Universe()
        u0.add(a)
        rng = random.Random(1)
        b = read(encode(shuffled(types, rng), rng))
        c = bs.Comparison(u0.child(), a, b)
        self.assertTrue(c.equal)
        self.assertEqual(c.totals()[2], len(types))
        n = 0
        for name in MUTATORS:
            rng = random.Random("v" + name)
            m = mutate(types, name, rng)
            if m is not None:
                # not shuffled: that is tested above and takes as long as all the rest
                b = read(encode(m))
                c = bs.Comparison(u0.child(), a, b)
                self.assertFalse(c.equal, name)
                n += 1
        print("  vmlinux: shuffled equal; %d mutations caught" % n, file=sys.stderr)


def naive(files):
    """Coarsest stable partition by plain rounds over all types of all files.
    files: list of (list of labels by id, list of refs by id) with id 0 void."""
    color = []
    first = {}
    for labels, _ in files:
        color.append([first.setdefault(l, len(first)) for l in labels])
    count = len(first)
    while True:
        table = {}
        new = []
        for (labels, refs), col in zip(files, color):
            new.append([table.setdefault((col[i],) + tuple(col[r] for r in refs[i]), len(table))
                        for i in range(len(labels))])
        color = new
        if len(table) == count:
            return color
        count = len(table)


def full_graph(b):
    labels, refs = [("void",)], [()]
    chain = []
    x = b
    while x is not None:
        chain.append(x)
        x = x.base
    for x in reversed(chain):
        labels += x.label
        refs += x.refs
    return labels, refs


class TestPartition(unittest.TestCase):
    def same_partition(self, got, want):
        there, back = {}, {}
        for g, w in zip(got, want):
            for x, y in zip(g, w):
                if there.setdefault(x, y) != y or back.setdefault(y, x) != x:
                    return False
        return True

    def graph(self, rng, n, lo, with_base):
        """Random, mostly ill-typed graph with many cycles and equal parts."""
        out = []
        top = lo + n
        for _ in range(n):
            k = rng.choice((PTR, PTR, CONST, STRUCT, STRUCT, PROTO, TYPEDEF, INT))
            def any_():
                return rng.randrange(0, top) if rng.random() < .8 or not with_base else \
                    rng.randrange(0, lo)
            if k in (PTR, CONST):
                out.append(T(k, "", any_()))
            elif k == TYPEDEF:
                out.append(T(k, rng.choice("ab"), any_()))
            elif k == INT:
                out.append(T(k, rng.choice("ij"), 4, [32]))
            elif k == STRUCT:
                out.append(T(k, rng.choice(("", "s", "t")), 8,
                             [["m%d" % j, any_(), 0] for j in range(rng.randrange(3))]))
            else:
                out.append(T(k, "", any_(), [["", any_()] for _ in range(rng.randrange(3))]))
        return out

    def test_random(self):
        """Universe and digest against naive refinement, with split BTF."""
        equal_pairs = cyc = 0
        for seed in range(1500):
            rng = random.Random(seed)
            base = self.graph(rng, rng.randrange(1, 14), 1, False)
            bdata = encode(base)
            bb = read(bdata)
            bstr = bb.strdata
            lo = len(base) + 1
            files = [bb]
            split = self.graph(rng, rng.randrange(1, 12), lo, True)
            files.append(read(encode(split, base_strs=bstr, start=lo), bb))
            # a second split file: same, shuffled, or with one change
            other = shuffled(split, rng, lo)
            if rng.random() < .6:
                t = rng.choice(other)
                if t.kind in REF_ST:
                    t.st = rng.randrange(0, lo + len(other))
                elif t.x and t.kind == STRUCT:
                    rng.choice(t.x)[1] = rng.randrange(0, lo + len(other))
            files.append(read(encode(other, rng, base_strs=bstr, start=lo), bb))
            # and an unrelated base with an own copy of everything
            whole = [t.copy() for t in base] + [t.copy() for t in split]
            files.append(read(encode(shuffled(whole, rng), rng)))
            rng.shuffle(files)
            want = naive([full_graph(f) for f in files])
            u = bs.Universe()
            got = [u.add(f) for f in files]
            self.assertTrue(self.same_partition(got, want), seed)
            # classes are numbered without gaps and their signatures differ
            self.assertEqual(len(set(u.classes)), len(u.classes))
            # child universes agree
            u2 = bs.Universe()
            u2.add(bb)
            u3 = u2.child()
            got = [u3.add(f) for f in files]
            self.assertTrue(self.same_partition(got, want), seed)
            # digest: equal exactly when the multisets are
            for i in range(len(files)):
                for j in range(i):
                    fi, fj = files[i], files[j]
                    eq = sorted(want[i][fi.start:]) == sorted(want[j][fj.start:])
                    self.assertEqual(equal(fi, fj), eq, seed)
                    self.assertEqual(bs.digest_of(fi) == bs.digest_of(fj), eq, seed)
                    equal_pairs += eq
            cyc += 1
        print("  random graphs: %d sets of 4 files, %d equal pairs" % (cyc, equal_pairs),
              file=sys.stderr)

    def test_collapsing_cycle(self):
        """z = (z, w), w = (w, w): z equals w although in another cycle."""
        def s(*refs):
            return T(STRUCT, "s", 8, [["a", refs[0], 0], ["b", refs[1], 0]])
        types = [s(1, 1), s(2, 1), s(3, 2), s(5, 4), s(4, 5)]
        u = bs.Universe()
        c = u.add(read(encode(types)))
        self.assertEqual(len(set(c[1:])), 1)

    @unittest.skipUnless(SLOW and VMLINUX and SECOND, "slow")
    def test_vmlinux_naive(self):
        fs = [bs.load(VMLINUX), bs.load(SECOND)]
        want = naive([full_graph(f) for f in fs])
        u = bs.Universe()
        got = [u.add(f) for f in fs]
        self.assertTrue(self.same_partition(got, want))


class TestBad(Files):
    """Invalid input: exit status 2 or a failed check; no traceback, no hang."""

    def all_commands(self, p, good, tag, base=()):
        for argv in (("check", p), ("check", p, "--json"), ("digest", p), ("compare", good, p),
                     ("compare", p, good, "--json"), ("compare", p, p, "--flatten-arrays"),
                     ("compare", p, good, "--ignore", "CONST,TYPE_TAG"),
                     ("compare", p, good, "--ignore-param-names")):
            try:
                with limit(20):
                    rc, out, err = run_main(*argv, *base)
            except Timeout:
                self.fail("%s: %s hangs" % (tag, argv[0]))
            except Exception as e:
                self.fail("%s: %s: %s: %s" % (tag, argv, type(e).__name__, e))
            self.assertIn(rc, (0, 1, 2), tag)
            if rc == 2:
                self.assertIn("bad input", err)
            yield argv[0], rc, out

    def test_truncated(self):
        data = encode(zoo(), layout=True)
        good = self.put("good", data)
        for n in list(range(0, 80)) + list(range(80, len(data), 13)) + [len(data) - 1]:
            p = self.put("t", data[:n])
            for cmd, rc, _ in self.all_commands(p, good, "cut at %d" % n):
                self.assertEqual(rc, 2, "%s: cut at %d" % (cmd, n))

    def test_truncated_elf(self):
        good = self.put("good", encode(zoo()))
        for cls in (1, 2):
            data = elf({".BTF": encode(zoo()), ".BTF.base": encode(zoo()[:6])}, cls)
            for n in list(range(0, 100)) + list(range(100, len(data), 97)):
                p = self.put("t", data[:n])
                for cmd, rc, _ in self.all_commands(p, good, "elf cut at %d" % n):
                    self.assertEqual(rc, 2)

    def test_flips(self):
        data = encode(zoo(), layout=True)
        good = self.put("good", data)
        seen = {0: 0, 1: 0, 2: 0}
        for seed in range(500):
            rng = random.Random(seed)
            d = bytearray(data)
            for _ in range(rng.choice((1, 1, 2, 8))):
                if rng.random() < .5:
                    d[rng.randrange(len(d))] = rng.randrange(256)
                else:
                    o = rng.randrange(len(d) // 4) * 4
                    d[o:o + 4] = struct.pack("<I", rng.choice((0, 1, 0xffffffff, 0x7fffffff, 60,
                                                               rng.getrandbits(32))))
            p = self.put("f", bytes(d))
            for cmd, rc, _ in self.all_commands(p, good, "seed %d" % seed):
                seen[rc] += 1
        self.assertTrue(seen[1] and seen[2])

    def test_elf_flips(self):
        data = elf({".BTF": encode(zoo())}, 1, ">")
        good = self.put("good", encode(zoo()))
        n = len(data)
        for seed in range(300):
            rng = random.Random(seed)
            d = bytearray(data)
            for _ in range(3):
                d[rng.choice((rng.randrange(52), rng.randrange(n - 160, n)))] = rng.randrange(256)
            p = self.put("f", bytes(d))
            for cmd, rc, _ in self.all_commands(p, good, "elf seed %d" % seed):
                pass

    def test_random_bytes(self):
        good = self.put("good", encode(zoo()))
        for seed in range(100):
            rng = random.Random(seed)
            d = rng.randbytes(rng.randrange(200))
            head = rng.choice((b"", b"\x7fELF", b"\x9f\xeb\1\0\x18\0\0\0", b"\xeb\x9f\1\0\0\0\0\x18"))
            p = self.put("r", head + d)
            for cmd, rc, _ in self.all_commands(p, good, "random %d" % seed):
                pass

    def test_not_there(self):
        self.assertEqual(run_main("check", os.path.join(self.dir, "nope"))[0], 2)
        self.assertEqual(run_main("check", self.dir)[0], 2)
        good = self.put("good", encode(zoo()))
        self.assertEqual(run_main("compare", good, good, "--base", self.put("e", b""))[0], 2)
        self.assertEqual(run_main("compare", good)[0], 2)

    def rule(self, change, rule, cls=None, types=None, **kw):
        """change(types) makes a file whose check must report rule."""
        types = types or zoo()
        r = change(types)
        p = self.put("x", encode(r if isinstance(r, list) else types, **kw))
        good = self.put("good", encode(zoo()))
        for cmd, rc, out in self.all_commands(p, good, rule):
            if cmd == "check":
                self.assertEqual(rc, 1, rule + "\n" + out)
                self.assertIn(rule, out)
            else:
                self.assertIn(rc, (0, 1, 2))

    def test_rules(self):
        def named(types, name, kind=None):
            return next(t for t in types if t.name == name and (kind is None or t.kind == kind))

        def kind(types, k, n=0):
            return [t for t in types if t.kind == k][n]

        def idof(types, name):
            return next(i for i, t in enumerate(types) if t.name == name) + 1

        def setter(find, **kw):
            def f(types):
                t = find(types)
                for k, v in kw.items():
                    setattr(t, k, v)
            return f

        def on(find, do):
            return lambda types: do(find(types), types) and None
        R = self.rule
        # ids
        R(setter(lambda t: kind(t, PTR), st=9999), "type id out of range")
        R(setter(lambda t: named(t, "node_t"), st=0xffffffff), "type id out of range")
        R(on(lambda t: kind(t, ARRAY), lambda a, t: a.x.__setitem__(0, 500)), "type id out of range")
        # cycles
        R(on(lambda t: named(t, "node_t"), lambda a, t: setattr(a, "st", idof(t, "node_t"))),
          "cycle of pointers and modifiers")
        R(on(lambda t: named(t, "node_t"), lambda a, t: (setattr(a, "st", idof(t, "num_t")),
          setattr(named(t, "num_t"), "st", idof(t, "node_t")))), "cycle of pointers and modifiers")
        R(on(lambda t: kind(t, CONST), lambda a, t: setattr(a, "st", t.index(a) + 1)),
          "cycle of pointers and modifiers")
        R(on(lambda t: kind(t, PTR), lambda a, t: setattr(a, "st", t.index(a) + 1)),
          "cycle of pointers and modifiers")
        R(on(lambda t: named(t, "node"), lambda a, t: a.x[0].__setitem__(1, idof(t, "node"))),
          "type contains itself")
        R(on(lambda t: kind(t, ARRAY), lambda a, t: a.x.__setitem__(0, t.index(a) + 1)),
          "type contains itself")
        R(on(lambda t: named(t, "node"), lambda a, t: (a.x[0].__setitem__(1, idof(t, "list")),
          named(t, "list").x[0].__setitem__(1, idof(t, "node")))), "type contains itself")

        def chain(types):
            n = len(types)
            for j in range(40):
                types.append(T(CONST, "", 1 if j == 0 else n + j))
        R(chain, "modifier chain is longer than 32")
        # names
        R(setter(lambda t: named(t, "node"), name="1x"), "invalid name")
        R(setter(lambda t: named(t, "node"), name="a b"), "invalid name")
        R(setter(lambda t: named(t, "node"), name="x" * 600), "invalid name")
        R(setter(lambda t: named(t, "node_t"), name=""), "invalid name")
        R(setter(lambda t: named(t, "opaque"), name=""), "invalid name")
        R(setter(lambda t: named(t, "get"), name=""), "invalid name")
        R(setter(lambda t: named(t, "counter"), name=""), "invalid name")
        R(setter(lambda t: named(t, ".data"), name=""), "invalid name")
        R(setter(lambda t: named(t, ".data"), name="a\x01"), "invalid name")
        R(setter(lambda t: kind(t, TYPE_TAG), name=""), "invalid name")
        R(setter(lambda t: kind(t, DECL_TAG), name=""), "invalid name")
        R(setter(lambda t: kind(t, PTR), name="p"), "must have no name")
        R(setter(lambda t: kind(t, ARRAY), name="p"), "must have no name")
        R(setter(lambda t: kind(t, PROTO), name="p"), "must have no name")
        R(on(lambda t: named(t, "node"), lambda a, t: a.x[0].__setitem__(0, "-")),
          "invalid member name")
        R(on(lambda t: named(t, "color"), lambda a, t: a.x[0].__setitem__(0, "")),
          "invalid enumerator name")
        R(on(lambda t: kind(t, PROTO), lambda a, t: a.x[0].__setitem__(0, "a b")),
          "invalid parameter name")
        # vlen, kind_flag, sizes
        for k in (INT, PTR, ARRAY, FWD, TYPEDEF, VOLATILE, CONST, RESTRICT, VAR, FLOAT, DECL_TAG,
                  TYPE_TAG):
            R(setter(lambda t, k=k: kind(t, k), vlen=3), "vlen must be 0")
        for k in (INT, PTR, ARRAY, TYPEDEF, VOLATILE, CONST, RESTRICT, FUNC, PROTO, VAR, DATASEC,
                  FLOAT):
            R(setter(lambda t, k=k: kind(t, k), kflag=1), "kind_flag must be 0")
        R(setter(lambda t: kind(t, ARRAY), st=4), "array size field must be 0")
        R(setter(lambda t: kind(t, FWD), st=4), "FWD type field must be 0")
        R(on(lambda t: kind(t, ARRAY), lambda a, t: a.x.__setitem__(0, 0)), "array of void")
        R(on(lambda t: kind(t, ARRAY), lambda a, t: a.x.__setitem__(1, 0)), "array index is void")
        R(on(lambda t: kind(t, ARRAY), lambda a, t: a.x.__setitem__(1, idof(t, "node"))),
          "array index is not a regular int")
        R(on(lambda t: kind(t, ARRAY), lambda a, t: a.x.__setitem__(2, 0x7fffffff)),
          "array size over 32 bits")
        R(on(lambda t: kind(t, ARRAY), lambda a, t: a.x.__setitem__(0, idof(t, "opaque"))),
          "array of a type without size")
        R(on(lambda t: kind(t, ARRAY), lambda a, t: a.x.__setitem__(0, idof(t, "counter"))),
          "array of a kind that is no type")
        R(setter(lambda t: kind(t, INT), x=[200]), "int bits")
        R(setter(lambda t: kind(t, INT), x=[33]), "int bits")
        R(setter(lambda t: kind(t, INT), x=[3 << 24 | 32]), "int encoding")
        R(setter(lambda t: kind(t, INT), x=[1 << 28 | 32]), "int data has unknown bits")
        R(setter(lambda t: kind(t, ENUM), st=3), "enum size")
        R(setter(lambda t: kind(t, ENUM64), st=16), "enum size")
        R(setter(lambda t: kind(t, FLOAT), st=3), "float size")
        # members
        mix = lambda t: named(t, "mix")                               # noqa: E731
        R(on(mix, lambda a, t: a.x[1].__setitem__(1, 0)), "member of type void")
        R(on(mix, lambda a, t: a.x[1].__setitem__(2, 8000)), "member outside the struct")
        R(on(mix, lambda a, t: a.x[3].__setitem__(2, 0)), "member order")
        R(on(mix, lambda a, t: a.x[0].__setitem__(2, 3)), "member not byte aligned")
        R(on(mix, lambda a, t: setattr(a, "st", 72)), "member reaches beyond the struct")
        R(on(mix, lambda a, t: a.x[0].__setitem__(1, idof(t, "opaque"))),
          "member of a type without size")
        R(on(mix, lambda a, t: a.x[0].__setitem__(1, idof(t, "get"))),
          "member of a kind that is no type")
        R(on(lambda t: named(t, "any"), lambda a, t: a.x[0].__setitem__(2, 8)),
          "union member offset")
        R(on(lambda t: named(t, "bits"), lambda a, t: a.x[0].__setitem__(2, 40 << 24)),
          "bitfield wider than its type")
        R(on(lambda t: named(t, "bits"), lambda a, t: a.x[0].__setitem__(1, idof(t, "node"))),
          "bitfield of a wrong kind")
        # functions
        R(on(lambda t: named(t, "get"), lambda a, t: setattr(a, "st", 1)),
          "function without FUNC_PROTO")
        R(setter(lambda t: named(t, "get"), st=0), "function without FUNC_PROTO")
        R(setter(lambda t: named(t, "get"), vlen=7), "function linkage")
        R(setter(lambda t: named(t, "get"), vlen=2), "function linkage extern")
        R(on(lambda t: kind(t, PROTO), lambda a, t: a.x[0].__setitem__(1, 0)),
          "parameter of type void")
        R(on(lambda t: kind(t, PROTO), lambda a, t: a.x[0].__setitem__(0, "")),
          "function parameter without name")
        R(on(lambda t: kind(t, PROTO, 1), lambda a, t: a.x[1].__setitem__(0, "v")),
          "vararg with a name")
        R(on(lambda t: kind(t, PROTO), lambda a, t: setattr(a, "st", idof(t, "opaque"))),
          "prototype uses a type without size")
        R(on(lambda t: kind(t, PROTO), lambda a, t: setattr(a, "st", idof(t, "counter"))),
          "prototype uses a kind that is no type")
        R(on(lambda t: kind(t, PTR), lambda a, t: setattr(a, "st", idof(t, "get"))),
          "refers to a kind that is no type")
        # variables, sections, tags
        R(setter(lambda t: named(t, "counter"), st=0), "variable of type void")
        R(setter(lambda t: named(t, "counter"), x=[9]), "variable linkage")
        R(setter(lambda t: named(t, "counter"), x=[2]), "variable linkage extern")
        R(on(lambda t: named(t, "counter"), lambda a, t: setattr(a, "st", idof(t, "opaque"))),
          "variable of a type without size")
        sec = lambda t: named(t, ".data")                             # noqa: E731
        R(setter(sec, st=0), "section size is 0")
        R(setter(sec, st=20), "section entry out of bounds")
        R(on(sec, lambda a, t: a.x.reverse()), "section entries overlap or are out of order")
        R(on(sec, lambda a, t: a.x[1].__setitem__(1, 3)), "section entries overlap")
        R(on(sec, lambda a, t: a.x[1].__setitem__(0, 1)), "section entry is no VAR")
        R(on(sec, lambda a, t: a.x[1].__setitem__(0, 0)), "section entry of type void")
        R(on(sec, lambda a, t: a.x[1].__setitem__(2, 0)), "section entry out of bounds")
        R(on(sec, lambda a, t: a.x[1].__setitem__(2, 2)), "section entry smaller than its variable")
        R(on(lambda t: named(t, "arg"), lambda a, t: a.x.__setitem__(0, 3)), "decl tag component")
        R(on(lambda t: named(t, "arg"), lambda a, t: a.x.__setitem__(0, 0xfffffffe)),
          "decl tag component")
        R(on(lambda t: named(t, "onvar"), lambda a, t: a.x.__setitem__(0, 0)), "decl tag component")
        R(on(lambda t: named(t, "member"), lambda a, t: a.x.__setitem__(0, 7)),
          "decl tag component")
        R(on(lambda t: named(t, "arg"), lambda a, t: setattr(a, "st", 1)), "decl tag on a wrong kind")
        # header
        R(lambda t: None, "trailing data", extra=b"\0\0\0\0", hdr_len=32)

    def test_header_rules(self):
        good = encode(zoo(), hdr_len=32)
        g = self.put("good", good)

        def w(off, fmt, v):
            d = bytearray(good)
            struct.pack_into(fmt, d, off, v)
            return bytes(d)
        # structure that cannot be read
        for d in (w(0, "<H", 0), w(2, "<B", 2), w(4, "<I", 8), w(4, "<I", 1 << 30),
                  w(8, "<I", 2), w(12, "<I", 0xfffffffc), w(12, "<I", 30), w(16, "<I", 1 << 31),
                  w(20, "<I", 1 << 31), w(20, "<I", 0), good[:-1] + b"x"):
            p = self.put("h", d)
            for cmd, rc, _ in self.all_commands(p, g, "header"):
                self.assertEqual(rc, 2)
        # readable but refused by the kernel
        hx = bytearray(encode(zoo(), hdr_len=40))
        hx[36] = 1
        for d, rule in ((w(3, "<B", 1), "header flags"), (bytes(hx), "header extension")):
            p = self.put("h", d)
            rc, out, _ = run_main("check", p)
            self.assertEqual(rc, 1)
            self.assertIn(rule, out)
            self.assertEqual(run_main("compare", p, g)[0], 0)   # semantics are the same
        # wrong layout
        d = bytearray(encode(zoo(), layout=True))
        hl, = struct.unpack_from("<I", d, 4)
        lo, = struct.unpack_from("<I", d, 24)
        d[hl + lo + 4 * STRUCT + 1] = 16
        rc, out, _ = run_main("check", self.put("h", bytes(d)))
        self.assertEqual(rc, 1)
        self.assertIn("layout section", out)

    def test_deep(self):
        """Long chains and heavy sharing: no recursion error, no blow-up."""
        types = [T(INT, "int", 4, [32])] + [T(PTR, "", i) for i in range(1, 30000)]
        dag = [T(INT, "int", 4, [32])]
        for i in range(1, 300):
            dag.append(T(PROTO, "", i, [["", i], ["", i]]))
        arr = [T(INT, "int", 4, [32])] + [T(ARRAY, "", 0, [i, 1, 2]) for i in range(1, 3000)]
        anon = [T(INT, "int", 4, [32])]
        for i in range(1, 200):
            anon.append(T(STRUCT, "", 1 << 30, [["a", i, 0], ["b", i, 1 << 20]]))
        ring = [T(INT, "int", 4, [32])] + [T(CONST, "", i + 3 if i < 20000 else 2)
                                           for i in range(20001)]
        ring[50].kind = VOLATILE
        mods = [T(INT, "int", 4, [32])] + [T(CONST, "", i) for i in range(1, 20000)]
        for types in (types, dag, arr, anon, ring, mods):
            p = self.put("deep", encode(types))
            m = [t.copy() for t in types]
            m[0].st = 8
            q = self.put("deep2", encode(m))
            t0 = time.time()
            for cmd, rc, _ in self.all_commands(p, q, "deep"):
                if cmd == "check" and types in (ring, mods, anon):
                    self.assertEqual(rc, 1)
            self.assertLess(time.time() - t0, 60)
            self.assertEqual(run_main("compare", p, q)[0], 1)
            self.assertEqual(run_main("compare", p, p)[0], 0)


class TestQuality(Files):
    def test_quality(self):
        types = zoo()
        rc, out, _ = run_main("check", self.put("a", encode(types)), "--strict")
        self.assertEqual(rc, 0, out)
        dup = types + [types[8].copy()]
        rc, out, _ = run_main("check", self.put("b", encode(dup)))
        self.assertEqual(rc, 0)
        self.assertIn("quality: duplicate (1)", out)
        self.assertEqual(run_main("check", self.put("b", encode(dup)), "--strict")[0], 1)
        fwd = types + [T(FWD, "node", 0)]
        rc, out, _ = run_main("check", self.put("c", encode(fwd)))
        self.assertIn("forward declaration with one full definition", out)
        fwd = types + [T(FWD, "twin", 0)]
        rc, out, _ = run_main("check", self.put("c", encode(fwd)))
        self.assertIn("forward declaration with several full definitions", out)
        fwd = types + [T(FWD, "node", 0, kflag=1)]
        rc, out, _ = run_main("check", self.put("c", encode(fwd)))
        self.assertNotIn("one full definition", out)
        # a cyclic duplicate
        n = len(types)
        st = next(i for i, t in enumerate(types) if t.name == "node")
        ls = next(i for i, t in enumerate(types) if t.name == "list")
        dup = [t.copy() for t in types] + [types[st].copy(), types[ls].copy(),
                                           T(PTR, "", n + 1), T(PTR, "", n + 2)]
        dup[n].x[0][1] = n + 3
        dup[n].x[1][1] = n + 4
        dup[n + 1].x[0][1] = n + 3
        rc, out, _ = run_main("check", self.put("d", encode(dup)))
        self.assertIn("quality: duplicate (4)", out)

    def test_many(self):
        types = zoo()
        for d, seeds in (("x", 1), ("y", 2)):
            for n in range(4):
                rng = random.Random(seeds * 10 + n)
                self.put("%s/sub/m%d" % (d, n), encode(shuffled(types, rng), rng))
        x, y = os.path.join(self.dir, "x"), os.path.join(self.dir, "y")
        rc, out, _ = run_main("compare-many", x, y)
        self.assertEqual(rc, 0, out)
        self.assertEqual(len(out.splitlines()), 5)
        self.put("y/sub/m2", encode(mutate(types, "enum_value", random.Random(1))))
        rc, out, _ = run_main("compare-many", x, y)
        self.assertEqual(rc, 1)
        self.assertIn("3 equal, 1 different", out)
        self.put("y/new", encode(types))
        rc, out, _ = run_main("compare-many", x, y, "--json")
        self.assertEqual(rc, 1)
        self.assertEqual(json.loads(out)["total"]["only-b"], 1)
        self.put("y/sub/m3", b"junk junk")
        self.assertEqual(run_main("compare-many", x, y)[0], 2)

    def test_digest_is_stable(self):
        """Golden value: a change of the digest needs a new version number."""
        out = run_main("digest", self.put("z", encode(zoo())))[1]
        self.assertEqual(out.split()[0], GOLDEN)
        p = subprocess.run([sys.executable, TOOL, "digest", os.path.join(self.dir, "z")],
                           env=dict(os.environ, PYTHONHASHSEED="7"), capture_output=True, text=True)
        self.assertEqual(p.stdout.split()[0], GOLDEN)

    def test_command_line(self):
        a = self.put("a", encode(zoo()))
        b = self.put("b", encode(mutate(zoo(), "enum_value", random.Random(3))))
        c = self.put("c", b"no btf here")
        for x, y, want in ((a, a, 0), (a, b, 1), (a, c, 2)):
            p = subprocess.run([sys.executable, TOOL, "compare", x, y], capture_output=True,
                               text=True)
            self.assertEqual(p.returncode, want, p.stderr)
            self.assertNotIn("Traceback", p.stderr)


GOLDEN = "eabe58dc042de8806a7671d3401734f94d6247f938fc4b19b8a5c5a122bccfe0"


@unittest.skipUnless(shutil.which("bpftool") and VMLINUX, "no bpftool or no vmlinux BTF")
class TestBpftool(unittest.TestCase):
    def test_counts(self):
        p = subprocess.run(["bpftool", "btf", "dump", "file", VMLINUX, "format", "raw"],
                           capture_output=True, text=True)
        if p.returncode:
            self.skipTest("bpftool cannot read %s" % VMLINUX)
        want = {}
        for m in re.finditer(r"^\[\d+\] (\w+) ", p.stdout, re.M):
            want[m.group(1)] = want.get(m.group(1), 0) + 1
        b = bs.load(VMLINUX)
        got = {}
        for k in b.kind:
            got[bs.kind_name(k)] = got.get(bs.kind_name(k), 0) + 1
        self.assertEqual(got, want)

    def test_text(self):
        """Names, sizes, offsets and references of all structs, functions,
        arrays and ints as bpftool prints them."""
        p = subprocess.run(["bpftool", "btf", "dump", "file", VMLINUX, "--json"],
                           capture_output=True, text=True)
        if p.returncode:
            self.skipTest("bpftool cannot read %s" % VMLINUX)
        b = bs.load(VMLINUX)
        n = 0
        for t in json.loads(p.stdout)["types"]:
            i = t["id"]
            label, refs = b.label_of(i), b.refs_of(i)
            self.assertEqual(bs.kind_name(b.kind_of(i)), t["kind"])
            name = label[1].decode()
            self.assertEqual(name or "(anon)", t["name"])
            if t["kind"] in ("STRUCT", "UNION"):
                self.assertEqual(label[2], t["size"])
                kf = label[0] >> 31
                got = [(n_.decode() or "(anon)", r) + bs.member_off(kf, o)
                       for n_, r, o in zip(label[3], refs, label[4])]
                self.assertEqual(got, [(m["name"], m["type_id"], m["bits_offset"],
                                        m.get("bitfield_size", 0)) for m in t["members"]])
            elif t["kind"] == "FUNC_PROTO":
                self.assertEqual(refs[0], t["ret_type_id"])
                self.assertEqual([(n_.decode() or "(anon)", r) for n_, r in
                                  zip(label[2], refs[1:])],
                                 [(m["name"], m["type_id"]) for m in t["params"]])
            elif t["kind"] == "ARRAY":
                self.assertEqual((refs, label[3]), ((t["type_id"], t["index_type_id"]),
                                                    t["nr_elems"]))
            elif t["kind"] == "INT":
                self.assertEqual((label[2], label[3] & 0xff), (t["size"], t["nr_bits"]))
            elif t["kind"] in ("ENUM", "ENUM64"):
                # bpftool 7.1 prints unsigned 32-bit values sign extended
                mask = (1 << (32 if t["kind"] == "ENUM" else 64)) - 1
                self.assertEqual([(n_.decode(), v) for n_, v in zip(label[3], label[4])],
                                 [(m["name"], m["val"] & mask) for m in t["values"]])
            elif "type_id" in t:
                self.assertEqual(refs, (t["type_id"],))
            n += 1
        self.assertEqual(n, len(b.kind))


@unittest.skipUnless(VMLINUX, "no vmlinux BTF")
class TestSpeed(unittest.TestCase):
    def test_vmlinux_in_15_seconds(self):
        t0 = time.time()
        p = subprocess.run([sys.executable, TOOL, "compare", VMLINUX, VMLINUX, "-q"],
                           capture_output=True, text=True)
        self.assertEqual(p.returncode, 0)
        self.assertLess(time.time() - t0, 15)


if __name__ == "__main__":
    unittest.main()
