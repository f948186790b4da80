//! The engine side of the server through its public interfaces: stores, engine, dispatch, gRPC.

#[cfg(test)]
mod adversary;
#[cfg(test)]
mod claims;
#[cfg(test)]
mod common;
#[cfg(test)]
mod dispatch;
#[cfg(test)]
mod engine;
mod lease_records;
#[cfg(test)]
mod lent;
#[cfg(test)]
mod owner;
#[cfg(test)]
mod parts;
#[cfg(test)]
mod records;
#[cfg(test)]
mod reflection;
mod saga_records;
#[cfg(test)]
mod shares;
#[cfg(test)]
mod starts;
#[cfg(test)]
mod stores;
#[cfg(test)]
mod stream;
#[cfg(test)]
mod traces;
#[cfg(test)]
mod unary;
