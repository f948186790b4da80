//! A log with group commit and nothing else: everything that has gathered is written and synced at
//! once, then the replies that waited for it are sent.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use anyhow::{Context, Result};
use handfast_proto::v1::{ServerFrame, ServerMessage};
use tokio::sync::mpsc::UnboundedSender;

/// The file is written full of zeroes once and then overwritten in place: syncs need no change of
/// the file's metadata. Small, so that a disk with a burst limit does not meet it.
const FILE_BYTES: u64 = 64 << 20;

/// The log. Its thread ends when the last clone is dropped.
#[derive(Clone, Debug)]
pub(super) struct AppendLog {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    gathered: Mutex<Gathered>,
    filled: Condvar,
}

/// The records that the next sync makes durable, and the replies that wait for it.
#[derive(Debug, Default)]
struct Gathered {
    bytes: Vec<u8>,
    answers: Vec<Answers>,
}

/// The replies of one connection that wait for a sync.
#[derive(Debug)]
pub(super) struct Answers {
    pub(super) messages: Vec<ServerMessage>,
    pub(super) to: UnboundedSender<ServerFrame>,
}

impl AppendLog {
    /// Creates the file and starts the thread.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let file = zeroed(path, FILE_BYTES)?;
        let shared = Arc::<Shared>::default();
        let log = Self { shared: Arc::clone(&shared) };
        std::thread::Builder::new()
            .name("log".to_owned())
            .spawn(move || {
                if let Err(error) = write_on(&shared, &file) {
                    // Without its log the server cannot reply. The parent notices that it has
                    // ended.
                    std::process::exit(if error.kind() == std::io::ErrorKind::StorageFull {
                        28
                    } else {
                        1
                    });
                }
            })
            .context("starting the log's thread")?;
        Ok(log)
    }

    /// Makes the bytes durable, then sends the replies.
    pub(super) fn append(&self, bytes: &[u8], answers: Answers) {
        let mut gathered = self.shared.lock();
        gathered.bytes.extend_from_slice(bytes);
        match gathered.answers.last_mut() {
            Some(last) if last.to.same_channel(&answers.to) => {
                last.messages.extend(answers.messages);
            }
            _ => gathered.answers.push(answers),
        }
        drop(gathered);
        self.shared.filled.notify_one();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Gathered> {
        self.gathered.lock().expect("no holder of the log's lock panics")
    }

    fn take(&self) -> Gathered {
        let gathered = self.filled.wait_while(self.lock(), |gathered| gathered.bytes.is_empty());
        std::mem::take(&mut *gathered.expect("no holder of the log's lock panics"))
    }
}

fn write_on(shared: &Shared, file: &File) -> std::io::Result<()> {
    let mut at = 0;
    loop {
        let gathered = shared.take();
        let length = gathered.bytes.len() as u64;
        if at + length > FILE_BYTES {
            at = 0;
        }
        file.write_all_at(&gathered.bytes, at)?;
        file.sync_data()?;
        at += length;
        for Answers { messages, to } in gathered.answers {
            if !messages.is_empty() {
                // The client may have disconnected.
                let _ = to.send(ServerFrame { messages });
            }
        }
    }
}

/// Creates a file of zeroes that are written to the disk, and not a sparse one.
pub(super) fn zeroed(path: &Path, bytes: u64) -> Result<File> {
    let opened = OpenOptions::new().create(true).truncate(true).write(true).open(path);
    let mut file = opened.with_context(|| path.display().to_string())?;
    let block = vec![0; 1 << 20];
    for _ in 0..bytes.div_ceil(block.len() as u64) {
        file.write_all(&block).context("filling a file")?;
    }
    file.sync_all().context("syncing a file")?;
    Ok(file)
}
