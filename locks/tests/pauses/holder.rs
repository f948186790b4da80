//! The steps of a holder of a lock, and where it can be stopped.

use handfast_locks::{FencingToken, LockName};

use crate::resource::Resource;

/// How a holder uses its token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AcquisitionId {
    /// It installs the token before it reads.
    Claimed,
    /// It reads, and shows the token when it writes.
    ComparedAtTheWrite,
}

/// Where a holder is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Between the lock and the first step.
    BeforeReading,
    /// Between the transaction with the read and the one with the write.
    AfterReading,
    /// Within one transaction with both.
    AmidTransaction,
}

/// When the stopped holder goes on, in the work of the next holder.
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

/// The holders whose writes the resource has confirmed.
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

/// A holder at some point of its work, which is to read a number and write the next one.
pub(crate) struct Holder<'r, R: Resource> {
    resource: &'r R,
    name: LockName,
    fencing_token: FencingToken,
    id: AcquisitionId,
    read: Option<i64>,
    open: Option<R::Open>,
}

impl<'r, R: Resource> Holder<'r, R> {
    pub(crate) fn new(
        resource: &'r R,
        name: &LockName,
        fencing_token: FencingToken,
        id: AcquisitionId,
    ) -> Self {
        Self { resource, name: name.clone(), fencing_token, id, read: None, open: None }
    }

    /// Works until the stop.
    pub(crate) async fn stop_at(&mut self, stop: Stop) {
        match (stop, self.id) {
            (Stop::BeforeReading, _) => {}
            (_, AcquisitionId::ComparedAtTheWrite) => self.read = Some(self.resource.read().await),
            (Stop::AfterReading, AcquisitionId::Claimed) => {
                self.begin().await;
                self.resource.commit(self.open.take().unwrap()).await;
            }
            (Stop::AmidTransaction, AcquisitionId::Claimed) => self.begin().await,
        }
    }

    /// The next holder, which the resource never refuses.
    async fn begin(&mut self) {
        let (open, read) = self.resource.begin(&self.name, self.fencing_token).await.unwrap();
        (self.open, self.read) = (Some(open), Some(read));
    }

    /// Goes on to the end, and returns whether the write was confirmed.
    async fn go_on(&mut self) -> bool {
        if self.read.is_none() {
            match self.id {
                AcquisitionId::ComparedAtTheWrite => self.read = Some(self.resource.read().await),
                AcquisitionId::Claimed => {
                    let Ok((open, read)) =
                        self.resource.begin(&self.name, self.fencing_token).await
                    else {
                        return false;
                    };
                    (self.open, self.read) = (Some(open), Some(read));
                }
            }
        }
        let number = self.read.unwrap() + 1;
        match self.open.take() {
            Some(open) => self.resource.finish(open, self.fencing_token, number).await.is_ok(),
            None => self.resource.write(&self.name, self.fencing_token, number).await.is_ok(),
        }
    }

    /// Works from beginning to end, while the stopped holder goes on at its time.
    pub(crate) async fn work_beside(mut self, stopped: &mut Self, resume: Resume) -> Written {
        let mut confirmed = None;
        if resume == Resume::First {
            confirmed = Some(stopped.go_on().await);
        }
        match self.id {
            AcquisitionId::ComparedAtTheWrite => self.read = Some(self.resource.read().await),
            // The stopped holder's transaction has locked the claim's row, and the next holder
            // waits for its end.
            AcquisitionId::Claimed if R::CLAIMS_LOCK && stopped.open.is_some() => {
                let ((), was_confirmed) = tokio::join!(self.begin(), stopped.go_on());
                confirmed = Some(was_confirmed);
            }
            AcquisitionId::Claimed => self.begin().await,
        }
        if resume == Resume::BetweenReadAndWrite && confirmed.is_none() {
            // The stopped holder may have to wait for the end of this transaction to be refused.
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
