//! Files that are made full of zeroes, as the journal's and the engine's log are.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

const BLOCK_BYTES: usize = 1 << 20;

/// Whether a file, or all that is in a directory, holds nothing but zeroes. What is missing does.
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

/// The next bytes in place of what is in the buffer; false at the end.
fn read_block(file: &mut File, block: &mut Vec<u8>) -> io::Result<bool> {
    block.clear();
    file.take(BLOCK_BYTES as u64).read_to_end(block)?;
    Ok(!block.is_empty())
}
