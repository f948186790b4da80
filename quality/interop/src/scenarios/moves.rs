//! Services that move from Seata Server to the coordinator, and back, on the same database.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Child, Stdio};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};
use handfast_interop::seata_server::{self, Flush};
use handfast_test_services::free_address;

use crate::service::{Said, Service};
use crate::stage::{AMOUNT, TestBed, take_one};
use crate::wait::{same, until};

/// The application that moves.
const APPLICATION: &str = "mover";

/// A running Seata Server. Dropping it kills it.
#[derive(Debug)]
struct SeataServer {
    child: Child,
    address: SocketAddr,
}

impl SeataServer {
    fn start(stage: &TestBed) -> Result<Self> {
        build()?;
        let folder = stage.folder().join("seata-server");
        fs::create_dir_all(&folder)?;
        let address = free_address(Ipv4Addr::LOCALHOST.into())?;
        let console = free_address(Ipv4Addr::LOCALHOST.into())?;
        let mut java = seata_server::command(&folder, address, console, Flush::Later)?;
        let log = File::create(folder.join("log")).context("making a log")?;
        java.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let server = Self { child: java.spawn().context("running java")?, address };
        until("Seata Server listens", || Ok(is_served(address)))?;
        Ok(server)
    }
}

/// Fetches Seata Server, for one stage at a time: all of them build it in one folder.
fn build() -> Result<()> {
    static BUILDING: Mutex<()> = Mutex::new(());
    let _building = BUILDING.lock().unwrap_or_else(PoisonError::into_inner);
    seata_server::build()
}

/// A free port of this machine that is asked for again and again is connected to itself one day.
fn is_served(address: SocketAddr) -> bool {
    let connected = TcpStream::connect(address).and_then(|stream| stream.local_addr());
    connected.is_ok_and(|own| own != address)
}

impl Drop for SeataServer {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Both servers run. A global of one is refused by services of the other and leaves nothing; what
/// had begun ends where it began; then the service goes to the coordinator, and back.
pub(super) fn there_and_back(stage: &TestBed) -> Result<()> {
    let server = SeataServer::start(stage)?;
    let coordinator = stage.coordinator().address();
    let before = stage.service_between(APPLICATION, server.address, coordinator)?;
    let (begun, foreign) = (stage.new_row()?, stage.new_row()?);
    let buyer = before.actor();
    let xid = buyer.begin(120_000)?;
    buyer.tell(&format!("at {}", take_one(begun)))?;

    let desk = stage.desk();
    let elsewhere = desk.begin(120_000)?;
    let stranger = before.actor();
    stranger.join(&elsewhere)?;
    stranger.ask(&format!("at {}", take_one(foreign)))?.failed()?;
    stranger.leave()?;
    desk.tell("rollback")?;
    same("the amount that a foreign global wanted", &stage.amount(foreign)?, &AMOUNT)?;
    same("its undo rows", &stage.undo_rows(&elsewhere)?, &"0".to_owned())?;

    // Drained: the global of before is ended by the server that knows it.
    buyer.tell("rollback")?;
    stage.until_amount(begun, AMOUNT)?;
    stage.until_no_undo_rows(&xid)?;
    before.kill()?;

    works(stage, &stage.service_between(APPLICATION, coordinator, server.address)?)?;
    works(stage, &stage.service_between(APPLICATION, server.address, coordinator)?)
}

/// The two servers do not know each other's row locks: a row that globals of both write is written
/// by both, and the rollback finds the foreign write.
pub(super) fn shared_rows(stage: &TestBed) -> Result<()> {
    let server = SeataServer::start(stage)?;
    let coordinator = stage.coordinator().address();
    let before = stage.service_between(APPLICATION, server.address, coordinator)?;
    let row = stage.new_row()?;
    let buyer = before.actor();
    let xid = buyer.begin(120_000)?;
    buyer.tell(&format!("at {}", take_one(row)))?;
    let other = stage.shop().actor();
    other.begin(120_000)?;
    other.tell(&format!("at {}", take_one(row)))?;
    same("the end", &other.tell("commit")?, &"Committed".to_owned())?;
    // What the client is told of an undo that cannot be made is its own affair: the rows tell.
    let _: Said = buyer.ask("rollback")?.said()?;
    same("the amount", &stage.amount(row)?, &(AMOUNT - 2))?;
    same("undo rows that are left", &stage.undo_rows(&xid)?, &"1".to_owned())
}

/// A commit and a rollback, as on any day. Ends the service.
fn works(stage: &TestBed, service: &Service) -> Result<()> {
    let (bought, given_back) = (stage.new_row()?, stage.new_row()?);
    let buyer = service.actor();
    let xid = buyer.begin(120_000)?;
    buyer.tell(&format!("at {}", take_one(bought)))?;
    same("the end", &buyer.tell("commit")?, &"Committed".to_owned())?;
    same("the amount", &stage.amount(bought)?, &(AMOUNT - 1))?;
    stage.until_no_undo_rows(&xid)?;
    let xid = buyer.begin(120_000)?;
    buyer.tell(&format!("at {}", take_one(given_back)))?;
    buyer.tell("rollback")?;
    stage.until_amount(given_back, AMOUNT)?;
    stage.until_no_undo_rows(&xid)?;
    service.kill()
}
