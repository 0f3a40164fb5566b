//! The new layout of a file. Takes checked headers and an edit, gives a [`Plan`]; reads and writes
//! nothing.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ops::Range;

use memchr::memmem;
use object::elf;

use super::image::Image;
use super::record::{Format, SectionHeader};
use super::{Edit, EmbedError, Placement, note};

/// More unclaimed bytes than this between two pieces at the end of a file are not padding but
/// something of somebody else's: they are kept.
const PADDING_LIMIT: u64 = 15;

/// Where contents of sections start in the file: readers map them and expect aligned words.
const CONTENT_ALIGNMENT: u64 = 8;

/// The section count from which `e_shnum` is 0 and section 0 has it (`SHN_LORESERVE`).
const FIRST_EXTENDED_COUNT: usize = 0xff00;

/// Bytes and where they go.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Patch<'a> {
    pub(super) offset: u64,
    pub(super) bytes: Cow<'a, [u8]>,
}

/// How to make the new file from the old one: the first `keep` bytes, zeros up to `length`, and the
/// patches on top.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Plan<'a> {
    pub(super) keep: u64,
    pub(super) length: u64,
    pub(super) patches: Vec<Patch<'a>>,
    pub(super) placements: Vec<Placement>,
}

impl Plan<'_> {
    /// The plan that keeps the first `length` bytes, and nothing else.
    pub(super) const fn of_start(length: u64) -> Self {
        Self { keep: length, length, patches: Vec::new(), placements: Vec::new() }
    }
}

/// Plans `edit` for the file with the headers `image`; `None` if there is nothing to do.
pub(super) fn plan<'a>(image: &Image<'_>, edit: &Edit<'a>) -> Result<Option<Plan<'a>>, EmbedError> {
    check_names(edit)?;
    let roles = Roles::assign(image, edit)?;
    if edit.sections.is_empty() && roles.removed.is_empty() {
        return Ok(None);
    }
    let mut layout = Layout::new(image, &roles);
    for index in &roles.removed {
        layout.headers.set(*index, &SectionHeader::default())?;
    }
    for (&(name, bytes), target) in edit.sections.iter().zip(&roles.targets) {
        match target {
            Some(index) => layout.replace(*index, bytes)?,
            None => layout.add(name, bytes)?,
        }
    }
    layout.finish().map(Some)
}

fn check_names(edit: &Edit<'_>) -> Result<(), EmbedError> {
    let mut seen = BTreeSet::new();
    let names = edit.sections.iter().map(|(name, _)| *name).chain(edit.remove.iter().copied());
    for name in names {
        let what = if name.is_empty() || name.contains('\0') {
            "not a section name"
        } else if !seen.insert(name) {
            "named twice"
        } else {
            continue;
        };
        return Err(EmbedError::Request { name: name.to_owned(), what });
    }
    Ok(())
}

/// What an edit means for the sections that are there.
#[derive(Debug)]
struct Roles {
    /// For each section of the edit, the index of the one it replaces.
    targets: Vec<Option<usize>>,
    /// Sections that become inactive.
    removed: BTreeSet<usize>,
}

impl Roles {
    fn assign(image: &Image<'_>, edit: &Edit<'_>) -> Result<Self, EmbedError> {
        let mut roles = Self { targets: vec![None; edit.sections.len()], removed: BTreeSet::new() };
        for (index, section) in image.sections.iter() {
            let name = image.name(&section);
            let mut written = edit.sections.iter().map(|(name, _)| name.as_bytes());
            let written = written.position(|written| written == name);
            let is_removed = edit.remove.iter().any(|removed| removed.as_bytes() == name);
            if (written.is_some() || is_removed) && index == image.names_index {
                let name = String::from_utf8_lossy(name).into_owned();
                let what = "it holds the names of the sections";
                return Err(EmbedError::Request { name, what });
            }
            match written.map(|position| &mut roles.targets[position]) {
                Some(target @ None) => *target = Some(index),
                None if !is_removed => {}
                // Removed, or a second section of a name that is written: a stale copy.
                _ => _ = roles.removed.insert(index),
            }
        }
        roles.remove_relocations(image);
        Ok(roles)
    }

    /// Relocations describe the old bytes; a linker would apply them to the new ones.
    fn remove_relocations(&mut self, image: &Image<'_>) {
        if self.removed.is_empty() && self.targets.iter().all(Option::is_none) {
            return;
        }
        for (index, section) in image.sections.iter() {
            let is_relocation = [elf::SHT_REL.0, elf::SHT_RELA.0].contains(&section.kind)
                && !section.has_flag(elf::SHF_ALLOC.0);
            let applies_to = section.info as usize;
            if is_relocation
                && index != image.names_index
                && (self.targets.contains(&Some(applies_to)) || self.removed.contains(&applies_to))
            {
                self.removed.insert(index);
            }
        }
        for index in self.targets.iter().flatten() {
            // A relocation section that the edit writes stays.
            self.removed.remove(index);
        }
    }

    fn gives_up_its_bytes(&self, index: usize) -> bool {
        self.removed.contains(&index) || self.targets.contains(&Some(index))
    }
}

/// The offset from which the file may be written anew: everything before it stays.
fn tail_start(image: &Image<'_>, roles: &Roles) -> u64 {
    let mut kept_end = image.tables[0].end.max(image.tables[1].end);
    kept_end = image.segments.iter().map(|segment| segment.end).fold(kept_end, u64::max);
    let mut free = vec![image.tables[2].clone()];
    for (index, section) in image.sections.iter() {
        let range = section.range();
        if range.is_empty() {
            continue;
        }
        let movable = index == image.names_index || roles.gives_up_its_bytes(index);
        if movable && !image.is_pinned(&section) {
            free.push(range);
        } else {
            kept_end = kept_end.max(range.end);
        }
    }
    free_end(image.length, &free).max(kept_end)
}

/// Walks from the end of the file to its start over pieces that are free.
fn free_end(length: u64, free: &[Range<u64>]) -> u64 {
    let mut end = length;
    let mut padding = 0;
    while let Some(piece) = free
        .iter()
        .filter(|piece| piece.start < end && piece.end <= end && end - piece.end <= padding)
        .max_by_key(|piece| piece.end)
    {
        end = piece.start;
        padding = PADDING_LIMIT;
    }
    end
}

/// Section headers that are being changed.
#[derive(Debug)]
struct Headers {
    format: Format,
    bytes: Vec<u8>,
}

impl Headers {
    fn count(&self) -> usize {
        self.bytes.len() / self.format.section_header_size()
    }

    fn get(&self, index: usize) -> SectionHeader {
        let start = index * self.format.section_header_size();
        let bytes = self.bytes.get(start..).unwrap_or_default();
        SectionHeader::decode(self.format, bytes).unwrap_or_default()
    }

    fn set(&mut self, index: usize, header: &SectionHeader) -> Result<(), EmbedError> {
        let record = header.encode(self.format).ok_or(EmbedError::TooLarge)?;
        let start = index * record.len();
        if start == self.bytes.len() {
            self.bytes.extend_from_slice(&record);
        } else {
            self.bytes[start..start + record.len()].copy_from_slice(&record);
        }
        Ok(())
    }

    /// Index for a new section: after the last one that is in use.
    fn free_index(&self) -> usize {
        let size = self.format.section_header_size();
        let used =
            self.bytes.rchunks_exact(size).skip_while(|header| header.iter().all(|&b| b == 0));
        used.count().max(1)
    }
}

/// A layout in the making. Pieces are put one after the other from `end` on.
struct Layout<'a, 'image> {
    image: &'image Image<'image>,
    keep: u64,
    end: u64,
    headers: Headers,
    names: Cow<'image, [u8]>,
    patches: Vec<Patch<'a>>,
    placements: Vec<Placement>,
}

impl<'a, 'image> Layout<'a, 'image> {
    fn new(image: &'image Image<'image>, roles: &Roles) -> Self {
        let keep = tail_start(image, roles);
        let bytes = image.sections.bytes().to_vec();
        Self {
            image,
            keep,
            end: keep,
            headers: Headers { format: image.header.format, bytes },
            names: Cow::Borrowed(image.names),
            patches: Vec::new(),
            placements: Vec::new(),
        }
    }

    fn put(&mut self, bytes: Cow<'a, [u8]>, alignment: u64) -> Result<u64, EmbedError> {
        let offset = self.end.checked_next_multiple_of(alignment).ok_or(EmbedError::TooLarge)?;
        self.end = offset.checked_add(bytes.len() as u64).ok_or(EmbedError::TooLarge)?;
        self.patches.push(Patch { offset, bytes });
        Ok(offset)
    }

    fn add(&mut self, name: &str, bytes: &'a [u8]) -> Result<(), EmbedError> {
        let offset = self.put(Cow::Borrowed(bytes), CONTENT_ALIGNMENT)?;
        let (kind, alignment) = kind_and_alignment(name.as_bytes());
        let header = SectionHeader {
            name: self.name_offset(name)?,
            kind,
            offset,
            size: bytes.len() as u64,
            alignment,
            ..SectionHeader::default()
        };
        self.placements.push(Placement::Added);
        self.headers.set(self.headers.free_index(), &header)
    }

    fn replace(&mut self, index: usize, bytes: &'a [u8]) -> Result<(), EmbedError> {
        let old = self.headers.get(index);
        let pinned = self.image.is_pinned(&old);
        let mut header = SectionHeader {
            kind: kind_and_alignment(self.image.name(&old)).0,
            flags: old.flags & !elf::SHF_COMPRESSED.0,
            size: bytes.len() as u64,
            ..old
        };
        let mut placement = Placement::Replaced;
        if self.fits_in_place(index, &old, pinned, header.size) {
            self.patches.push(Patch { offset: old.offset, bytes: Cow::Borrowed(bytes) });
        } else {
            let offset = self.put(Cow::Borrowed(bytes), CONTENT_ALIGNMENT)?;
            if pinned {
                placement = Placement::Detached;
                header = detached(&header);
            }
            header.offset = offset;
        }
        self.placements.push(placement);
        self.headers.set(index, &header)
    }

    fn fits_in_place(&self, index: usize, old: &SectionHeader, pinned: bool, size: u64) -> bool {
        let range = old.range();
        let fits = if pinned { size == old.size } else { size <= old.size };
        fits && range.end - range.start == old.size
            && range.end <= self.keep
            && !self.image.is_shared(index, &range)
    }

    /// Offset of `name` in the name table, which grows only if it has no such string yet.
    fn name_offset(&mut self, name: &str) -> Result<u32, EmbedError> {
        let string = [name.as_bytes(), b"\0"].concat();
        let offset = memmem::find(&self.names, &string).unwrap_or_else(|| {
            let names = self.names.to_mut();
            if names.last() != Some(&0) {
                names.push(0);
            }
            names.extend_from_slice(&string);
            names.len() - string.len()
        });
        u32::try_from(offset).map_err(|_| EmbedError::TooLarge)
    }

    fn finish(mut self) -> Result<Plan<'a>, EmbedError> {
        self.put_names()?;
        let mut header = self.image.header;
        let count = self.headers.count();
        if header.section_count == 0 || count >= FIRST_EXTENDED_COUNT {
            header.section_count = 0;
            let first = SectionHeader { size: count as u64, ..self.headers.get(0) };
            self.headers.set(0, &first)?;
        } else {
            header.section_count = u16::try_from(count).map_err(|_| EmbedError::TooLarge)?;
        }
        let table = std::mem::take(&mut self.headers.bytes);
        header.section_offset = self.put(Cow::Owned(table), header.format.word_size())?;
        // The old header fits its class, so only the new offset can fail to.
        let bytes = header.encode().ok_or(EmbedError::TooLarge)?;
        if !header.format.is_64 && self.end > u64::from(u32::MAX) {
            return Err(EmbedError::TooLarge);
        }
        self.patches.push(Patch { offset: 0, bytes: Cow::Owned(bytes) });
        let Self { keep, end: length, patches, placements, .. } = self;
        Ok(Plan { keep, length, patches, placements })
    }

    /// Puts the name table at the end if it grew or its place was given up.
    fn put_names(&mut self) -> Result<(), EmbedError> {
        let index = self.image.names_index;
        let old = self.headers.get(index);
        if matches!(self.names, Cow::Borrowed(_)) && old.range().end <= self.keep {
            return Ok(());
        }
        let names = std::mem::take(&mut self.names).into_owned();
        let mut header = if self.image.is_pinned(&old) { detached(&old) } else { old };
        header.size = names.len() as u64;
        header.offset = self.put(Cow::Owned(names), 1)?;
        self.headers.set(index, &header)
    }
}

/// Type and alignment of a section of this name; assemblers go by the name as well.
fn kind_and_alignment(name: &[u8]) -> (u32, u64) {
    if name.starts_with(b".note") {
        (elf::SHT_NOTE.0, note::ALIGNMENT)
    } else {
        (elf::SHT_PROGBITS.0, 1)
    }
}

/// The header of a section that leaves its segment.
fn detached(header: &SectionHeader) -> SectionHeader {
    SectionHeader { flags: 0, address: 0, ..*header }
}

#[cfg(test)]
mod tests;
