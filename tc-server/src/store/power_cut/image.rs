//! The content of a disk: files by name, and the effect of a power cut on the calls since the last
//! sync.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use rand::RngExt;
use rand::rngs::StdRng;

use super::super::disk::call_log::{Call, LoggedCall};

/// The unit that a disk writes as a whole or not at all.
const SECTOR_BYTES: u64 = 512;

/// The unsynced calls that are lost.
#[derive(Clone, Copy, Debug)]
pub(super) enum Loss {
    /// None: the process was killed, and the machine goes on.
    Nothing,
    Everything,
    /// All calls after some moment.
    Later,
    /// Any sectors, and all changes of names after some moment.
    Some,
}

impl Loss {
    pub(super) fn any(random: &mut StdRng) -> Self {
        match random.random_range(0..8) {
            0 => Self::Nothing,
            1 => Self::Everything,
            2 | 3 => Self::Later,
            _ => Self::Some,
        }
    }
}

/// Files by their names within the directory.
#[derive(Clone, Debug, Default)]
pub(super) struct Image {
    files: BTreeMap<PathBuf, Vec<u8>>,
}

/// A file: its durable content, and the writes since.
#[derive(Default)]
struct Written<'a> {
    durable: Vec<u8>,
    /// The calls, with their places in the log.
    since: Vec<(usize, &'a Call)>,
}

/// The file of each name, by index.
type Names = BTreeMap<PathBuf, usize>;

impl Image {
    /// Reads the content of a directory.
    pub(super) fn of(directory: &Path) -> Self {
        let mut image = Self::default();
        image.add(directory, Path::new(""));
        image
    }

    fn add(&mut self, directory: &Path, within: &Path) {
        for entry in fs::read_dir(directory.join(within)).unwrap() {
            let path = within.join(entry.unwrap().file_name());
            if directory.join(&path).is_dir() {
                self.add(directory, &path);
            } else {
                let bytes = fs::read(directory.join(&path)).unwrap();
                self.files.insert(path, bytes);
            }
        }
    }

    pub(super) fn lay_out(&self, directory: &Path) {
        for (path, bytes) in &self.files {
            let path = directory.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        }
    }

    /// Returns the content after the calls if the power is cut after the last of them.
    pub(super) fn after(&self, entries: &[LoggedCall], loss: Loss, random: &mut StdRng) -> Self {
        let kept = match loss {
            Loss::Nothing | Loss::Some => entries.len(),
            Loss::Everything => 0,
            Loss::Later => random.random_range(0..=entries.len()),
        };
        let mut files: Vec<Written<'_>> = Vec::new();
        let mut names = Names::new();
        for (path, bytes) in &self.files {
            names.insert(path.clone(), files.len());
            files.push(Written { durable: bytes.clone(), since: Vec::new() });
        }
        let names = replay(entries, &mut files, names, (loss, kept), random);
        let file = |(path, file): (PathBuf, usize)| {
            let bytes = files[file].cut((loss, kept), random);
            (path, bytes)
        };
        Self { files: names.into_iter().map(file).collect() }
    }
}

/// Applies the calls. Returns the names that a cut leaves.
fn replay<'a>(
    entries: &'a [LoggedCall],
    files: &mut Vec<Written<'a>>,
    mut now: Names,
    (loss, kept): (Loss, usize),
    random: &mut StdRng,
) -> Names {
    let mut durable = now.clone();
    // Every version of the names since they were last durable, with its place in the log.
    let mut steps: Vec<(usize, Names)> = Vec::new();
    for (place, entry) in entries.iter().enumerate() {
        let path = &entry.path;
        match &entry.call {
            Call::Create => {
                now.insert(path.clone(), files.len());
                files.push(Written::default());
            }
            Call::Rename(to) => {
                if let Some(file) = now.remove(path) {
                    now.insert(to.clone(), file);
                }
            }
            Call::Remove => now.retain(|name, _| !name.starts_with(path)),
            Call::Write { .. } | Call::SetLen(_) => {
                if let Some(file) = now.get(path) {
                    files[*file].since.push((place, &entry.call));
                }
                continue;
            }
            Call::Sync => {
                if let Some(file) = now.get(path) {
                    files[*file].sync();
                }
                continue;
            }
            Call::SyncNames => {
                durable = now.clone();
                steps.clear();
                continue;
            }
            Call::Acknowledged(_) => continue,
        }
        steps.push((place, now.clone()));
    }
    let steps = steps.into_iter().take_while(|(place, _)| *place < kept);
    let left: Vec<Names> = std::iter::once(durable).chain(steps.map(|(_, names)| names)).collect();
    let last = left.len() - 1;
    let chosen = if matches!(loss, Loss::Some) { random.random_range(0..=last) } else { last };
    left.into_iter().nth(chosen).unwrap_or_default()
}

impl Written<'_> {
    fn sync(&mut self) {
        let calls: Vec<&Call> = self.since.drain(..).map(|(_, call)| call).collect();
        calls.into_iter().for_each(|call| apply(&mut self.durable, call, &|_| true));
    }

    fn cut(&self, (loss, kept): (Loss, usize), random: &mut StdRng) -> Vec<u8> {
        let mut bytes = self.durable.clone();
        if !matches!(loss, Loss::Some) {
            let calls = self.since.iter().take_while(|(place, _)| *place < kept);
            calls.for_each(|(_, call)| apply(&mut bytes, call, &|_| true));
            return bytes;
        }
        // The disk holds, for each sector, one of its versions since the last sync.
        let sectors: BTreeSet<u64> =
            self.since.iter().flat_map(|(_, call)| sectors(call)).collect();
        let versions: BTreeMap<u64, usize> = sectors
            .into_iter()
            .map(|sector| (sector, any_version(self.since.len(), random)))
            .collect();
        let length = any_version(self.since.len(), random);
        for (version, (_, call)) in self.since.iter().enumerate() {
            if !matches!(call, Call::SetLen(_)) || version < length {
                apply(&mut bytes, call, &|sector| versions[&sector] > version);
            }
        }
        bytes
    }
}

fn any_version(count: usize, random: &mut StdRng) -> usize {
    match random.random_range(0..4) {
        0 => 0,
        1 => count,
        _ => random.random_range(0..=count),
    }
}

fn sectors(call: &Call) -> std::ops::Range<u64> {
    let Call::Write { offset, bytes } = call else { return 0..0 };
    let end = offset + bytes.len() as u64;
    offset / SECTOR_BYTES..end.div_ceil(SECTOR_BYTES)
}

/// Applies a call to a file, as far as its sectors arrive.
fn apply(file: &mut Vec<u8>, call: &Call, arrives: &dyn Fn(u64) -> bool) {
    if let Call::SetLen(bytes) = call {
        return file.resize(usize::try_from(*bytes).unwrap(), 0);
    }
    let Call::Write { offset, bytes } = call else { return };
    for sector in sectors(call).filter(|sector| arrives(*sector)) {
        let from = (sector * SECTOR_BYTES).max(*offset);
        let to = ((sector + 1) * SECTOR_BYTES).min(offset + bytes.len() as u64);
        let place = |at: u64| usize::try_from(at).unwrap();
        if file.len() < place(to) {
            file.resize(place(to), 0);
        }
        let part = &bytes[place(from - offset)..place(to - offset)];
        file[place(from)..place(to)].copy_from_slice(part);
    }
}
