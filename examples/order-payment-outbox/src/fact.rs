//! The events between the services.

use handfast::outbox::Event;
use serde::{Deserialize, Serialize};

use handfast_example_shop::Order;
use handfast_example_shop::services::ServiceFailure;

/// The service that emits: each has a topic of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Topic {
    Orders,
    Stock,
    Payments,
}

impl Topic {
    pub(crate) const ALL: [Self; 3] = [Self::Orders, Self::Stock, Self::Payments];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Orders => "orders",
            Self::Stock => "stock",
            Self::Payments => "payments",
        }
    }
}

/// An event of the choreography.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FactKind {
    /// The order is written.
    Placed,
    /// Its lines are deducted from the stock.
    Taken,
    /// There is not enough in stock, and nothing was deducted.
    OutOfStock,
    /// The customer is debited.
    Paid,
    /// The customer has not enough money, and nothing was debited.
    NoFunds,
    /// The customer has not enough money, and the deducted units are in stock again.
    PutBack,
}

/// Something that has happened to an order.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Fact {
    pub(crate) what: FactKind,
    /// The order in full, so that no service has to ask for it.
    pub(crate) order: Order,
}

impl Fact {
    /// Returns the fact as an event. The key is the customer: the events of one customer are
    /// delivered in order, and customers do not wait for each other.
    pub(crate) fn event(&self, topic: Topic) -> Result<Event, ServiceFailure> {
        Ok(Event::new(topic.name(), &self.order.customer_id).json(self)?)
    }

    /// Returns the fact that an event carries.
    pub(crate) fn of(event: &Event) -> Result<Self, ServiceFailure> {
        let read = serde_json::from_slice(event.payload_bytes());
        read.map_err(|error| ServiceFailure::Unavailable(format!("event {}: {error}", event.id())))
    }
}
