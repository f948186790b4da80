use handfast_macros::transaction;

#[transaction]
fn not_async(handfast: &Handfast) -> Result<(), Error> {}

#[transaction]
async fn returns_nothing(handfast: &Handfast) {}

#[transaction]
async fn returns_a_number(handfast: &Handfast) -> u32 {
    7
}

#[transaction]
async fn of_which_connection(shop: &Shop) -> Result<(), Error> {}

#[transaction]
struct NoFunction;

fn main() {}
