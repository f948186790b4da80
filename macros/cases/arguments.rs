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

#[transaction(labels = "order")]
async fn labels_without_parentheses(handfast: &Handfast, id: i64) -> Result<(), Error> {}

#[transaction(labels(order))]
async fn label_without_a_value(handfast: &Handfast, id: i64) -> Result<(), Error> {}

#[transaction(labels(order = id, order = id))]
async fn label_twice(handfast: &Handfast, id: i64) -> Result<(), Error> {}

#[transaction(labels("a=b" = id))]
async fn label_with_a_sign(handfast: &Handfast, id: i64) -> Result<(), Error> {}

#[transaction(labels(order = id), labels(country = "de"))]
async fn labels_twice(handfast: &Handfast, id: i64) -> Result<(), Error> {}

fn main() {}
