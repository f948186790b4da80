//! A client of Seata that is a TM, and an RM of one database: it carries out every call of phase
//! two.

use std::net::SocketAddr;

use handfast_seata_wire::frame::{HEADER_ONLY_BYTES, MessageKind, Piece, split};
use handfast_seata_wire::message::{
    BranchEnd, BranchEnded, BranchRegister, GlobalBegin, GlobalEnd, Message, Register,
    RegisterResources,
};
use handfast_seata_wire::value::{BranchStatus, BranchType, GlobalStatus};
use handfast_seata_wire::{DecodedMessage, Dialect, Encoding, Limits, decode, encode};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use crate::cluster::{ASK_EVERY, LIMIT};

const DATABASE: &str = "jdbc:mysql://127.0.0.1:3306/shop";

/// The connection has ended.
#[derive(Debug)]
pub(crate) struct Cut;

pub(crate) struct SeataClient {
    io: TcpStream,
    bytes: Vec<u8>,
    id_last: i32,
    /// The globals whose branches were committed.
    committed: Vec<String>,
}

impl SeataClient {
    /// Connects and registers, again and again until it is served.
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        let connected = async {
            loop {
                if let Ok(client) = Self::try_connect(address).await {
                    return client;
                }
                sleep(ASK_EVERY).await;
            }
        };
        timeout(LIMIT, connected).await.expect("a leader serves the client")
    }

    async fn try_connect(address: SocketAddr) -> Result<Self, Cut> {
        let io = TcpStream::connect(address).await.map_err(|_refused| Cut)?;
        let mut client = Self { io, bytes: Vec::new(), id_last: 0, committed: Vec::new() };
        let register = RegisterResources {
            client: Register {
                version: "2.3.0".to_owned(),
                application_id: "shop".to_owned(),
                ..Register::default()
            },
            resource_list: DATABASE.to_owned(),
        };
        let answer = client.ask(Message::RegisterRm(register)).await?;
        let Message::RegisterRmResult(registered) = answer else { panic!("{answer:?}") };
        registered.outcome.unwrap();
        Ok(client)
    }

    /// Returns its own address.
    pub(crate) fn address(&self) -> SocketAddr {
        self.io.local_addr().unwrap()
    }

    pub(crate) async fn begin(&mut self) -> Result<String, Cut> {
        let begin = GlobalBegin { timeout_ms: 600_000, name: "place-order".to_owned() };
        let answer = self.ask(Message::GlobalBegin(begin)).await?;
        let Message::GlobalBeginResult(begun) = answer else { panic!("{answer:?}") };
        begun.result.unwrap();
        Ok(begun.xid)
    }

    /// Registers a branch that locks a row.
    pub(crate) async fn register(&mut self, xid: &str, row: u32) -> Result<(), Cut> {
        let branch = BranchRegister {
            xid: xid.to_owned(),
            branch_type: BranchType::At,
            resource_id: DATABASE.to_owned(),
            lock_key: format!("orders:{row}"),
            application_data: String::new(),
        };
        let answer = self.ask(Message::BranchRegister(branch)).await?;
        let Message::BranchRegisterResult(registered) = answer else { panic!("{answer:?}") };
        registered.result.unwrap();
        Ok(())
    }

    pub(crate) async fn commit(&mut self, xid: &str) -> Result<GlobalStatus, Cut> {
        let end = GlobalEnd { xid: xid.to_owned(), extra_data: String::new() };
        let answer = self.ask(Message::GlobalCommit(end)).await?;
        let Message::GlobalCommitResult(standing) = answer else { panic!("{answer:?}") };
        Ok(standing.status)
    }

    /// Waits until it has committed its branch of a global.
    pub(crate) async fn until_committed(&mut self, xid: &str) -> Result<(), Cut> {
        while !self.committed.iter().any(|it| it == xid) {
            let received = self.read().await?;
            self.take(received).await?;
        }
        Ok(())
    }

    /// Waits for the end of the connection.
    pub(crate) async fn until_cut(&mut self) {
        let cut = async { while self.read().await.is_ok() {} };
        timeout(LIMIT, cut).await.expect("the connection ends");
    }

    async fn ask(&mut self, request: Message) -> Result<Message, Cut> {
        self.id_last += 1;
        let id = self.id_last;
        self.send(&request, MessageKind::Request, id).await?;
        loop {
            let received = self.read().await?;
            let is_answer = received.header.kind == MessageKind::Answer;
            if is_answer && received.header.id == id {
                return Ok(received.message);
            }
            self.take(received).await?;
        }
    }

    /// Carries out a call of phase two.
    async fn take(&mut self, received: DecodedMessage) -> Result<(), Cut> {
        let Message::BranchCommit(end) = received.message else { return Ok(()) };
        let BranchEnd { xid, branch_id, .. } = end;
        self.committed.push(xid.clone());
        let status = BranchStatus::PhaseTwoCommitted;
        let ended = BranchEnded { result: Ok(()), xid, branch_id, status };
        let answer = Message::BranchCommitResult(ended);
        self.send(&answer, MessageKind::Answer, received.header.id).await
    }

    async fn send(&mut self, message: &Message, kind: MessageKind, id: i32) -> Result<(), Cut> {
        let mut frame = Vec::new();
        let (encoding, dialect) = (Encoding::default(), Dialect::default());
        encode(message, kind, id, encoding, &dialect, &mut frame).unwrap();
        self.io.write_all(&frame).await.map_err(|_error| Cut)
    }

    async fn read(&mut self) -> Result<DecodedMessage, Cut> {
        let limits = Limits::default();
        loop {
            match split(&self.bytes, &limits).unwrap() {
                Piece::Frame(frame, length) => {
                    let received = decode(&frame, &Dialect::default(), &limits).unwrap();
                    self.bytes.drain(..length);
                    return Ok(received);
                }
                Piece::HeaderOnly(_) => drop(self.bytes.drain(..HEADER_ONLY_BYTES)),
                Piece::Incomplete => match self.io.read_buf(&mut self.bytes).await {
                    Ok(0) | Err(_) => return Err(Cut),
                    Ok(_) => {}
                },
            }
        }
    }
}
