#!/usr/bin/env python3
"""splitsame: compare the split BTF of modules that two programs made upon one base.

    splitsame.py BASE DIR_A DIR_B

Every NAME in DIR_A is compared with NAME.btf in DIR_B. Types are compared as *nominal classes*: a reference to a named
struct, union or enum, defined or declared, is just its kind and name; everything else is compared as a whole. So a
type of A may be missing in B if the base has it (libbpf leaves some copies of what the base has); B must have nothing
that A lacks, and nothing that is the same as a type of the base, all that it leads to included.

What pahole is known to lose is counted and is no difference: all per-CPU variables of a module whose debug sections
come before them in the file.
Exit status: 0 alike, 1 a difference, 2 a file is missing or damaged.
"""

import os
import struct
import sys

INT, ARRAY, STRUCT, UNION, ENUM, FWD, FUNC_PROTO, VAR, DATASEC, DECL_TAG, ENUM64 = 1, 3, 4, 5, 6, 7, 13, 14, 15, 17, 19
# Words after the first three: once, and for each member.
FIXED = {INT: 1, ARRAY: 3, VAR: 1, DECL_TAG: 1}
EACH = {STRUCT: 3, UNION: 3, ENUM: 2, ENUM64: 3, FUNC_PROTO: 2, DATASEC: 3}
ONE_REFERENCE = {2, 8, 9, 10, 11, 12, VAR, DECL_TAG, 18}


def kind_of(record):
    return record[1] >> 24 & 31


class Btf:
    """The types of an image, and of the base that it continues."""

    def __init__(self, path, base=None):
        with open(path, "rb") as file:
            data = file.read()
        magic, _, _, header, type_start, type_size, string_start, string_size = struct.unpack_from("<HBBIIIII", data)
        if magic != 0xEB9F:
            raise ValueError("no little-endian BTF")
        strings = data[header + string_start:header + string_start + string_size]
        self.strings = (base.strings if base else b"") + strings
        self.first = len(base.records) if base else 1
        self.records = list(base.records) if base else [None]
        words = struct.unpack_from("<%dI" % (type_size // 4), data, header + type_start)
        at = 0
        while at < len(words):
            kind = words[at + 1] >> 24 & 31
            end = at + 3 + FIXED.get(kind, 0) + (words[at + 1] & 0xFFFF) * EACH.get(kind, 0)
            self.records.append(words[at:end])
            at = end
        self.names = {}

    def name(self, offset):
        if offset not in self.names:
            self.names[offset] = self.strings[offset:self.strings.index(b"\0", offset)]
        return self.names[offset]

    def key(self, number):
        """Kind and name of a struct, union or enum that has one."""
        record = self.records[number]
        kind = kind_of(record)
        if not record[0] or kind not in (STRUCT, UNION, ENUM, ENUM64, FWD):
            return None
        if kind == FWD:
            kind = UNION if record[1] >> 31 else STRUCT
        return ENUM if kind == ENUM64 else kind, self.name(record[0])

    def is_declaration(self, number):
        record = self.records[number]
        return kind_of(record) == FWD or (kind_of(record) in (ENUM, ENUM64) and record[1] & 0xFFFF == 0)

    def body(self, number, refer):
        """What a type says, with `refer` of what it refers to."""
        record = self.records[number]
        kind, name = kind_of(record), self.name
        if kind in (STRUCT, UNION):
            rest = (record[2],) + tuple(x for at in range(3, len(record), 3) for x in (
                name(record[at]), refer(record[at + 1]), record[at + 2]))
        elif kind == DATASEC:
            rest = tuple(x for at in range(3, len(record), 3) for x in (refer(record[at]), *record[at + 1:at + 3]))
        elif kind == FUNC_PROTO:
            rest = (refer(record[2]),) + tuple(x for at in range(3, len(record), 2) for x in (
                name(record[at]), refer(record[at + 1])))
        elif kind in (ENUM, ENUM64):
            each = EACH[kind]
            rest = (record[2],) + tuple(x for at in range(3, len(record), each) for x in (
                name(record[at]), *record[at + 1:at + each]))
        elif kind == ARRAY:
            rest = refer(record[3]), refer(record[4]), record[5]
        elif kind in ONE_REFERENCE:
            rest = refer(record[2]), *record[3:]
        else:
            rest = record[2:]
        return record[1], name(record[0]), rest

    def dump(self):
        """All that the image adds to its base, in its order, as a dump of it would have it."""
        return [self.body(number, lambda target: target) for number in range(self.first, len(self.records))]

    def references(self, number):
        found = []
        self.body(number, lambda target: found.append(target) or 0)
        return found


class Classes:
    """Numbers for nominal classes, the same for equal ones of all files."""

    def __init__(self):
        self.numbers = {}

    def of(self, btf, known):
        """By id, the class of each type from `btf.first` on; `known` has those of the base."""
        found = {}

        def refer(number):
            if number == 0:
                return -1
            key = btf.key(number)
            return self.number(key) if key else form(number)

        def form(number):
            if number < btf.first:
                return known[number]
            if number not in found:
                found[number] = -2
                found[number] = self.number(btf.body(number, refer))
            return found[number]

        for number in range(btf.first, len(btf.records)):
            form(number)
        return found

    def number(self, what):
        return self.numbers.setdefault(what, len(self.numbers))


def are_same(btf, one, other, several):
    """Whether two types are the same in all that they lead to. A declaration is what its name stands for, unless that
    is one of `several` definitions."""
    seen, waiting = set(), [(one, other)]
    while waiting:
        pair = waiting.pop()
        if pair[0] == pair[1] or pair in seen:
            continue
        seen.add(pair)
        if 0 in pair:
            return False
        key = btf.key(pair[0])
        if key and key == btf.key(pair[1]) and key not in several and any(map(btf.is_declaration, pair)):
            continue
        if btf.body(pair[0], lambda _: 0) != btf.body(pair[1], lambda _: 0):
            return False
        waiting.extend(zip(*map(btf.references, pair)))
    return True


def repeated(btf, own, in_base):
    """Types of a module that are the same as one of the base; `in_base` has the ids of the base's classes."""
    candidates = [(number, in_base[form]) for number, form in own.items() if form in in_base]
    if not candidates:
        return []
    definitions = {}
    for number in range(1, len(btf.records)):
        key = btf.key(number)
        if key and not btf.is_declaration(number):
            definitions[key] = definitions.get(key, 0) + 1
    several = {key for key, count in definitions.items() if count > 1}
    return [number for number, others in candidates if any(are_same(btf, number, other, several) for other in others)]


def show(btf, own, forms):
    numbers = [number for number, form in own.items() if form in forms]
    for number in sorted(numbers)[:5]:
        print("    [%d] kind %d %r" % (number, kind_of(btf.records[number]), btf.name(btf.records[number][0])))


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    base_path, folder_a, folder_b = sys.argv[1:]
    sys.setrecursionlimit(100000)
    base, classes = Btf(base_path), Classes()
    known = classes.of(base, {})
    in_base = {}
    for number, form in known.items():
        in_base.setdefault(form, []).append(number)
    count = different = identical = lost = surplus = 0
    for name in sorted(os.listdir(folder_a)):
        try:
            a, b = (Btf(path, base) for path in (os.path.join(folder_a, name), os.path.join(folder_b, name + ".btf")))
        except (OSError, ValueError, struct.error, IndexError) as error:
            print("splitsame: %s: %s" % (name, error), file=sys.stderr)
            sys.exit(2)
        forms_a, forms_b = classes.of(a, known), classes.of(b, known)
        set_a, set_b = set(forms_a.values()), set(forms_b.values())
        only_a = {form for form in set_a - set_b if form not in in_base}
        only_b = set_b - set_a
        if not any(kind_of(record) == DATASEC for record in a.records[a.first:]):
            variables = {forms_b[n] for n in forms_b if kind_of(b.records[n]) in (VAR, DATASEC)}
            lost += bool(variables)
            only_b -= variables
        copies = repeated(b, forms_b, in_base)
        surplus += len(set_a - set_b - only_a)
        identical += a.dump() == b.dump()
        count += 1
        if only_a or only_b or copies:
            different += 1
            print("%s: %d classes only in A, %d only in B, %d types of B are in the base"
                  % (name, len(only_a), len(only_b), len(copies)))
            show(a, forms_a, only_a)
            show(b, forms_b, only_b | {forms_b[number] for number in copies})
    print("%d modules, %d different; %d type by type the same, in the same order; copies of what the base has, only in A: %d; "
          "without their per-CPU variables in A: %d" % (count, different, identical, surplus, lost))
    sys.exit(1 if different else 0)


if __name__ == "__main__":
    main()
