//! A second host: a network namespace with a link to this one that can be cut, so that the kernel
//! itself loses every packet. Making one takes the right to make namespaces.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind};
use std::net::{IpAddr, Ipv4Addr};
use std::process::{Child, Command, Output, Stdio};

use anyhow::{Context, Result, ensure};

/// Keeps the namespace until its standard input ends, which is when we do.
const HOLD: &str = "echo ready; exec cat";

/// A network namespace of its own, kept by a process in it.
#[derive(Debug)]
pub struct Namespace {
    holder: Child,
}

/// Another host and the link to it.
#[derive(Debug)]
pub struct Host {
    namespace: Namespace,
    /// This end of the link; the other one goes with it.
    link: String,
    here: Ipv4Addr,
}

impl Namespace {
    /// Makes a namespace. Returns the reason as the inner error if this process may not, or the
    /// programs `unshare`, `nsenter` and `ip` are missing.
    ///
    /// # Errors
    /// When the process in it cannot be talked to.
    pub fn make() -> Result<Result<Self, String>> {
        for program in ["nsenter", "ip"] {
            if let Err(error) = Command::new(program).arg("-V").output() {
                return Ok(Err(format!("{program}: {error}")));
            }
        }
        Ok(hold()?.map(|holder| Self { holder }))
    }

    /// Returns the words before a command that is to run there.
    #[must_use]
    pub fn prefix(&self) -> [String; 4] {
        ["nsenter".to_owned(), "--net".to_owned(), "--target".to_owned(), self.id()]
    }

    /// Returns the id of a process in it.
    pub(crate) fn id(&self) -> String {
        self.holder.id().to_string()
    }

    /// Opens the file that stands for it.
    pub(crate) fn file(&self) -> Result<File> {
        let file = format!("/proc/{}/ns/net", self.id());
        File::open(&file).with_context(|| file)
    }

    /// Runs `ip` there.
    pub(crate) fn ip<Word: AsRef<OsStr>>(&self, arguments: &[Word]) -> Result<()> {
        let [nsenter, rest @ ..] = self.prefix();
        done(Command::new(nsenter).args(rest).arg("ip").args(arguments))
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // The namespace goes with its last process, and the end of a link with the namespace.
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

impl Host {
    /// Makes the host and its link. Returns the reason as the inner error if this process may not,
    /// or a program for it is missing.
    ///
    /// # Errors
    /// When the namespace can be made, but not the link.
    pub fn make() -> Result<Result<Self, String>> {
        let namespace = match Namespace::make()? {
            Ok(namespace) => namespace,
            Err(reason) => return Ok(Err(reason)),
        };
        // Names and addresses that no other run of this machine uses.
        let own = std::process::id();
        let [_, _, high, low] = own.to_be_bytes();
        let here = Ipv4Addr::new(198, 18 + (high & 1), low, 1);
        let there = Ipv4Addr::new(198, 18 + (high & 1), low, 2);
        let host = Self { namespace, link: format!("hf{own}a"), here };
        let (near, far, id) = (&host.link, &format!("hf{own}b"), &host.namespace.id());
        if let Err(error) = ip(&["link", "add", near, "type", "veth", "peer", "name", far]) {
            return Ok(Err(error.to_string()));
        }
        ip(&["link", "set", far, "netns", id])?;
        ip(&["addr", "add", &format!("{here}/30"), "dev", near])?;
        ip(&["link", "set", near, "up"])?;
        host.namespace.ip(&["addr", "add", &format!("{there}/30"), "dev", far])?;
        host.namespace.ip(&["link", "set", far, "up"])?;
        Ok(Ok(host))
    }

    /// Returns the address of this host, as the other one sees it.
    #[must_use]
    pub fn here(&self) -> IpAddr {
        self.here.into()
    }

    /// Returns the words before a command that is to run there.
    #[must_use]
    pub fn prefix(&self) -> [String; 4] {
        self.namespace.prefix()
    }

    /// Drops every packet from now on, without an error at either end.
    ///
    /// # Errors
    /// When the link is gone.
    pub fn cut(&self) -> Result<()> {
        ip(&["link", "set", &self.link, "down"])
    }

    /// Lets packets pass again.
    ///
    /// # Errors
    /// When the link is gone.
    pub fn heal(&self) -> Result<()> {
        ip(&["link", "set", &self.link, "up"])
    }
}

/// Starts a process in a namespace of its own. Returns the reason if that is not possible.
fn hold() -> Result<Result<Child, String>> {
    let mut command = Command::new("unshare");
    command.args(["--net", "sh", "-c", HOLD]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut holder = match command.spawn() {
        Ok(holder) => holder,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Ok(Err(format!("unshare: {error}")));
        }
        Err(error) => return Err(error).context("starting unshare"),
    };
    let mut line = String::new();
    let said = holder.stdout.take().context("standard output is piped")?;
    BufReader::new(said).read_line(&mut line)?;
    if line.trim() == "ready" {
        return Ok(Ok(holder));
    }
    let output = holder.wait_with_output()?;
    Ok(Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}

/// Runs `ip` on this host.
pub(crate) fn ip<Word: AsRef<OsStr>>(arguments: &[Word]) -> Result<()> {
    done(Command::new("ip").args(arguments))
}

fn done(command: &mut Command) -> Result<()> {
    let Output { status, stderr, .. } = command.output().with_context(|| format!("{command:?}"))?;
    let line: Vec<_> = command.get_args().map(OsStr::to_string_lossy).collect();
    ensure!(status.success(), "{}: {}", line.join(" "), String::from_utf8_lossy(&stderr).trim());
    Ok(())
}
