//! The downgrade of a held lock: a writer becomes a reader.

use super::super::held::Downgrade;
use super::super::{Effect, Settings};
use super::{AcquisitionState, Phase};
use crate::backend::{AcquireResponse, LockMode, QueueMode};
use crate::clock::Moment;
use crate::error::{BackendError, LockError, LossReason};

impl AcquisitionState {
    /// Makes the holder a reader, once the backend knows. The backend gets a request of the same
    /// acquisition for the shared mode, which can be repeated. Until the backend knows, other
    /// readers wait in vain, and nothing worse happens.
    pub(in crate::machine) fn downgrade(
        &mut self,
        now: Moment,
        settings: &Settings,
        out: &mut Vec<Effect>,
    ) -> bool {
        if matches!(&self.phase, Phase::Held(held) if now < held.expiry.deadline) {
            self.send_downgrade(settings, out);
        } else {
            // The lock is lost, and its guard knows that by the clock.
            out.push(Effect::Downgraded { number: self.number });
        }
        true
    }

    pub(super) fn send_downgrade(&mut self, settings: &Settings, out: &mut Vec<Effect>) {
        let Phase::Held(held) = &mut self.phase else { return };
        let is_repeated = matches!(held.downgrade, Downgrade::At(_));
        held.downgrade = Downgrade::Sent { is_repeated };
        // The request must not wait: if another acquisition has the lock, this one is lost, and a
        // place in the queue would be left over from it.
        self.send_acquire(LockMode::READ, QueueMode::NoWait, settings, out);
    }

    pub(super) fn downgraded(
        &mut self,
        now: Moment,
        answer: Result<AcquireResponse, BackendError>,
        settings: &Settings,
        out: &mut Vec<Effect>,
    ) {
        let own = self.lock_ref(settings).id;
        let Phase::Held(held) = &mut self.phase else { return };
        let Downgrade::Sent { is_repeated } = held.downgrade else { return };
        held.downgrade = Downgrade::None;
        match answer {
            Ok(AcquireResponse::Granted { fencing_token, .. })
                if fencing_token == held.fencing_token =>
            {
                self.become_reader(out);
            }
            // The backend knows, and the lease ends as before: the limit of holding allows no more.
            Ok(AcquireResponse::Busy { holder: Some(holder), .. }) if holder.id == own => {
                self.become_reader(out);
            }
            // Another acquisition has the lock, or had it and this one has taken it again.
            Ok(AcquireResponse::Granted { .. } | AcquireResponse::Busy { .. }) => {
                self.mark_lost(LossReason::Taken, out);
            }
            // An earlier request went unanswered and may have been carried out: other readers may
            // be there, so the holder must not go on as a writer.
            Err(error) if error.is_final() && is_repeated => {
                self.mark_lost(LossReason::Taken, out);
            }
            // No request has changed anything at the backend: the holder stays what it was.
            Err(error) if error.is_final() => {
                let reason = LockError::refused(error);
                out.push(Effect::DowngradeRefused { number: self.number, reason });
            }
            Err(_) => {
                self.has_unanswered_request = true;
                self.failures += 1;
                held.downgrade = Downgrade::At(now + settings.retry_pause(self.failures));
            }
        }
    }

    fn become_reader(&mut self, out: &mut Vec<Effect>) {
        (self.mode, self.queue) = (LockMode::READ, QueueMode::NoWait);
        out.push(Effect::Downgraded { number: self.number });
    }
}
