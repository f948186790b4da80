use handfast_macros::transaction;

#[transaction(nmae = "place-order")]
async fn unknown(handfast: &Handfast) -> Result<(), Error> {}

#[transaction(timeout = 30)]
async fn without_a_unit(handfast: &Handfast) -> Result<(), Error> {}

#[transaction(timeout = "30 seconds")]
async fn another_unit(handfast: &Handfast) -> Result<(), Error> {}

#[transaction(timeout = "0s")]
async fn no_time(handfast: &Handfast) -> Result<(), Error> {}

#[transaction(propagation = "nested")]
async fn another_propagation(handfast: &Handfast) -> Result<(), Error> {}

#[transaction(name = "a", name = "b")]
async fn named_twice(handfast: &Handfast) -> Result<(), Error> {}

#[transaction(name = "")]
async fn unnamed(handfast: &Handfast) -> Result<(), Error> {}

#[transaction(name)]
async fn without_a_value(handfast: &Handfast) -> Result<(), Error> {}

#[transaction(read_committed = true)]
async fn with_a_value(handfast: &Handfast) -> Result<(), Error> {}

#[transaction(tx = 7)]
async fn no_variable(handfast: &Handfast) -> Result<(), Error> {}

fn main() {}
