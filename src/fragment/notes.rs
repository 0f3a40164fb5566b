//! What BTF cannot express, counted by kind for one summary line (DESIGN.md section 6).

use std::fmt;

/// A construct that was represented as well as BTF can, or left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Note {
    /// A typedef without a name: references lead to its target.
    NamelessTypedef,
    /// A forward declaration without a name: references to it are void.
    NamelessForward,
    /// An enumerator without a name is left out.
    NamelessEnumerator,
    /// A base type of a size that INT or FLOAT cannot have.
    BaseTypeSize,
    /// An enumeration of a size other than 1, 2, 4 or 8.
    EnumSize,
    /// An enumeration value that does not fit.
    EnumValue,
    /// A struct with bitfields and a member further into it than 2 MiB, or with a bitfield of more than
    /// 255 bits: its bitfields are left out.
    Bitfield,
    /// A member more than 512 MiB into its struct is left out.
    FarMember,
    /// A union member that is not at the start of the union.
    UnionOffset,
    /// A member whose place is computed at run time is left out.
    MemberLocation,
    /// More members, enumerators or parameters than 65535: the rest is left out.
    TooManyElements,
    /// A reference to something that is not a type of this unit is void.
    DanglingReference,
    /// A reference into another unit or file that leads to no type is void.
    ForeignReference,
    /// A cycle of types that no name can cut is cut with void.
    EndlessCycle,
    /// An array of 4 GiB or more has fewer elements.
    HugeArray,
    /// A string, set or file (Fortran, Pascal...) is a struct without members.
    Opaque,
    /// A member of type void is left out, an array of void becomes void, and a prototype ends at a
    /// parameter of type void.
    Void,
    /// A complex or imaginary number is encoded as an integer of that size.
    ComplexNumber,
    /// `_Atomic` and similar qualifiers are left out, the type they qualify stays.
    Qualifier,
    /// An imported unit (dwz) that is not there.
    ImportedUnit,
    /// A skeleton unit whose .dwo file is not there.
    SkeletonUnit,
}

const NOTES: usize = Note::SkeletonUnit as usize + 1;

impl Note {
    const ALL: [Self; NOTES] = [
        Self::NamelessTypedef,
        Self::NamelessForward,
        Self::NamelessEnumerator,
        Self::BaseTypeSize,
        Self::EnumSize,
        Self::EnumValue,
        Self::Bitfield,
        Self::FarMember,
        Self::UnionOffset,
        Self::MemberLocation,
        Self::TooManyElements,
        Self::DanglingReference,
        Self::ForeignReference,
        Self::EndlessCycle,
        Self::HugeArray,
        Self::Opaque,
        Self::Void,
        Self::ComplexNumber,
        Self::Qualifier,
        Self::ImportedUnit,
        Self::SkeletonUnit,
    ];

    const fn text(self) -> &'static str {
        match self {
            Self::NamelessTypedef => "typedef without a name",
            Self::NamelessForward => "forward declaration without a name",
            Self::NamelessEnumerator => "enumerator without a name",
            Self::BaseTypeSize => "base type of an odd size",
            Self::EnumSize => "enumeration of an odd size",
            Self::EnumValue => "enumeration value out of range",
            Self::Bitfield => "struct too large for bitfields, which are left out",
            Self::FarMember => "member beyond 512 MiB",
            Self::UnionOffset => "union member off the start",
            Self::MemberLocation => "member at a computed place",
            Self::TooManyElements => "type of more than 65535 elements",
            Self::DanglingReference => "reference to nothing",
            Self::ForeignReference => "reference into another unit",
            Self::EndlessCycle => "endless cycle of types",
            Self::HugeArray => "array of more than 4 GiB",
            Self::Opaque => "type that C has nothing like",
            Self::Void => "member, element or parameter of type void",
            Self::ComplexNumber => "complex number",
            Self::Qualifier => "qualifier such as _Atomic",
            Self::ImportedUnit => "imported unit",
            Self::SkeletonUnit => "unit of split DWARF that is not there",
        }
    }
}

/// How often each [`Note`] was made, and where the first one was.
#[derive(Clone, Debug, Default)]
pub struct Notes {
    counts: [u32; NOTES],
    first: [u64; NOTES],
    /// The first unit whose file is not there, and which that is.
    missing: Option<(u64, String)>,
    /// Whether other files were looked for: then the file at hand does not tell the result.
    pub draws_on_files: bool,
}

impl Notes {
    /// Counts `note` for the DIE at `offset` of `.debug_info`.
    pub fn add(&mut self, note: Note, offset: u64) {
        let index = note as usize;
        if self.counts[index] == 0 || offset < self.first[index] {
            self.first[index] = offset;
        }
        self.counts[index] = self.counts[index].saturating_add(1);
    }

    /// Counts a unit, the skeleton of which is at `offset`, whose file is not there.
    pub fn add_missing(&mut self, offset: u64, file: String) {
        self.add(Note::SkeletonUnit, offset);
        if self.missing.as_ref().is_none_or(|(first, _)| offset < *first) {
            self.missing = Some((offset, file));
        }
    }

    /// Adds the counts of `other`.
    pub fn merge(&mut self, other: &Self) {
        self.draws_on_files |= other.draws_on_files;
        if let Some((offset, file)) = &other.missing
            && self.missing.as_ref().is_none_or(|(first, _)| offset < first)
        {
            self.missing = Some((*offset, file.clone()));
        }
        for note in Note::ALL {
            let index = note as usize;
            if other.counts[index] == 0 {
                continue;
            }
            let known = self.counts[index] != 0;
            let first = if known { self.first[index] } else { u64::MAX };
            self.first[index] = first.min(other.first[index]);
            self.counts[index] = self.counts[index].saturating_add(other.counts[index]);
        }
    }

    /// Whether the files of some units are not there.
    #[must_use]
    pub const fn lacks_units(&self) -> bool {
        self.missing.is_some()
    }

    /// How much was noted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().map(|&count| u64::from(count)).sum()
    }

    /// Whether nothing was noted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count() == 0
    }
}

impl fmt::Display for Notes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for note in Note::ALL {
            let index = note as usize;
            if self.counts[index] > 0 {
                let (count, first) = (self.counts[index], self.first[index]);
                write!(formatter, "{separator}{count} x {} (first at {first:#x})", note.text())?;
                separator = ", ";
            }
        }
        if let Some((_, file)) = &self.missing {
            write!(formatter, ": {file}")?;
        }
        Ok(())
    }
}
