//! Preallocated files, which are full of zeroes until they are used: the journal's segments and the
//! old storage engine's log.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;

const BLOCK_BYTES: usize = 1 << 20;

/// Returns whether a file, or every file in a directory, holds nothing but zeroes. A missing file
/// does.
pub(super) fn is_blank(path: &Path) -> io::Result<bool> {
    if path.is_dir() {
        for entry in fs::read_dir(path)? {
            if !is_blank(&entry?.path())? {
                return Ok(false);
            }
        }
        return Ok(true);
    }
    let mut file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        opened => opened?,
    };
    let (zeroes, mut block) = (vec![0; BLOCK_BYTES], Vec::new());
    while read_block(&mut file, &mut block)? {
        if block != zeroes[..block.len()] {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Copies one file to another, durably, skipping blocks of zeroes. Every byte passes through this
/// process: the operating system's copy calls may let both files share the same disk blocks.
pub(super) fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let (mut from, to) = (File::open(from)?, File::create(to)?);
    to.set_len(from.metadata()?.len())?;
    let (zeroes, mut block) = (vec![0; BLOCK_BYTES], Vec::new());
    let mut offset = 0;
    while read_block(&mut from, &mut block)? {
        if block != zeroes[..block.len()] {
            to.write_all_at(&block, offset)?;
        }
        offset += block.len() as u64;
    }
    to.sync_all()
}

/// Replaces the buffer's content by the next block of the file. Returns false at the end.
fn read_block(file: &mut File, block: &mut Vec<u8>) -> io::Result<bool> {
    block.clear();
    file.take(BLOCK_BYTES as u64).read_to_end(block)?;
    Ok(!block.is_empty())
}
