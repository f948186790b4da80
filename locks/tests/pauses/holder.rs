//! What a holder of a lock does, and where he can be stopped.

use handfast_locks::{Fence, LockName};

use crate::resource::Resource;

/// How a holder uses his token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    /// He installs it before he reads.
    Claimed,
    /// He reads, and shows it when he writes.
    ComparedAtTheWrite,
}

/// Where he is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Between the lock and his first step.
    BeforeReading,
    /// Between the transaction in which he reads and the one in which he writes.
    AfterReading,
    /// Within the one in which he does both.
    AmidTransaction,
}

/// When he goes on, in the work of whoever follows him.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resume {
    First,
    BetweenReadAndWrite,
    Last,
}

/// A stop and its end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pause {
    pub(crate) stop: Stop,
    pub(crate) resume: Resume,
}

impl Pause {
    /// Each combination in turn.
    pub(crate) fn numbered(number: u32) -> Self {
        let stops = [Stop::BeforeReading, Stop::AfterReading, Stop::AmidTransaction];
        let resumes = [Resume::First, Resume::BetweenReadAndWrite, Resume::Last];
        let [stop, resume] = [number % 3, number / 3 % 3].map(|at| usize::try_from(at).unwrap());
        Self { stop: stops[stop], resume: resumes[resume] }
    }
}

/// Whose writes the resource has confirmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    ByOne,
    ByBoth,
}

impl Written {
    pub(crate) fn updates(self) -> i64 {
        match self {
            Self::ByOne => 1,
            Self::ByBoth => 2,
        }
    }
}

/// A holder somewhere in his work: to read a number and write the next one.
pub(crate) struct Holder<'r, R: Resource> {
    resource: &'r R,
    name: LockName,
    fence: Fence,
    token: Token,
    read: Option<i64>,
    open: Option<R::Open>,
}

impl<'r, R: Resource> Holder<'r, R> {
    pub(crate) fn new(resource: &'r R, name: &LockName, fence: Fence, token: Token) -> Self {
        Self { resource, name: name.clone(), fence, token, read: None, open: None }
    }

    /// Works until there.
    pub(crate) async fn stop_at(&mut self, stop: Stop) {
        match (stop, self.token) {
            (Stop::BeforeReading, _) => {}
            (_, Token::ComparedAtTheWrite) => self.read = Some(self.resource.read().await),
            (Stop::AfterReading, Token::Claimed) => {
                self.begin().await;
                self.resource.commit(self.open.take().unwrap()).await;
            }
            (Stop::AmidTransaction, Token::Claimed) => self.begin().await,
        }
    }

    /// Of the one who has followed: nobody refuses him.
    async fn begin(&mut self) {
        let (open, read) = self.resource.begin(&self.name, self.fence).await.unwrap();
        (self.open, self.read) = (Some(open), Some(read));
    }

    /// Goes on to the end, and answers whether the write was confirmed.
    async fn go_on(&mut self) -> bool {
        if self.read.is_none() {
            match self.token {
                Token::ComparedAtTheWrite => self.read = Some(self.resource.read().await),
                Token::Claimed => {
                    let Ok((open, read)) = self.resource.begin(&self.name, self.fence).await else {
                        return false;
                    };
                    (self.open, self.read) = (Some(open), Some(read));
                }
            }
        }
        let number = self.read.unwrap() + 1;
        match self.open.take() {
            Some(open) => self.resource.finish(open, self.fence, number).await.is_ok(),
            None => self.resource.write(&self.name, self.fence, number).await.is_ok(),
        }
    }

    /// Works from beginning to end, while the one before goes on when he is to.
    pub(crate) async fn work_beside(mut self, stopped: &mut Self, resume: Resume) -> Written {
        let mut confirmed = None;
        if resume == Resume::First {
            confirmed = Some(stopped.go_on().await);
        }
        match self.token {
            Token::ComparedAtTheWrite => self.read = Some(self.resource.read().await),
            // His transaction has the claim's row: whoever comes waits for its end.
            Token::Claimed if R::CLAIMS_LOCK && stopped.open.is_some() => {
                let ((), was_confirmed) = tokio::join!(self.begin(), stopped.go_on());
                confirmed = Some(was_confirmed);
            }
            Token::Claimed => self.begin().await,
        }
        if resume == Resume::BetweenReadAndWrite && confirmed.is_none() {
            // He may have to wait for the end of this transaction to be refused.
            let (was_confirmed, is_written) = tokio::join!(stopped.go_on(), async {
                if R::CLAIMS_LOCK && self.open.is_some() { Some(self.go_on().await) } else { None }
            });
            confirmed = Some(was_confirmed);
            if let Some(is_written) = is_written {
                return Self::written(is_written, was_confirmed);
            }
        }
        let is_written = self.go_on().await;
        let was_confirmed = match confirmed {
            Some(was_confirmed) => was_confirmed,
            None => stopped.go_on().await,
        };
        Self::written(is_written, was_confirmed)
    }

    fn written(is_written: bool, was_confirmed: bool) -> Written {
        assert!(is_written, "the later holder was refused");
        if was_confirmed { Written::ByBoth } else { Written::ByOne }
    }
}
