//! A participant without the library, and `handfast serve` as a process that is killed between its
//! calls: each operation takes effect once, and none is forgotten.

#[cfg(test)]
mod coordinator;
#[cfg(test)]
mod killed;
#[cfg(test)]
mod participant;
#[cfg(test)]
mod stream;
#[cfg(test)]
mod traced;
