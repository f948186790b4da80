//! Clients of Apache Seata at a real coordinator over TCP, played with the client side of
//! `handfast-seata-wire`.

#[cfg(test)]
mod client;
#[cfg(test)]
mod crowded;
#[cfg(test)]
mod discovery;
#[cfg(test)]
mod globals;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod locks;
#[cfg(test)]
mod merged;
#[cfg(test)]
mod nodes;
#[cfg(test)]
mod owner;
#[cfg(test)]
mod passed_on;
#[cfg(test)]
mod passed_on_encrypted;
#[cfg(test)]
mod phase_two;
#[cfg(test)]
mod registration;
#[cfg(test)]
mod shares;
#[cfg(test)]
mod traces;
#[cfg(test)]
mod undo_logs;
