//! Labels: what an application calls a global by, such as `order` with the value `42`.
//!
//! They are for operators, who search by them. No decision depends on one.

use std::sync::Arc;

/// One label.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Label {
    /// Its name, which a global has once.
    pub name: Arc<str>,
    /// Its value.
    pub value: Arc<str>,
}

impl Label {
    /// Creates a label.
    #[must_use]
    pub fn new(name: impl Into<Arc<str>>, value: impl Into<Arc<str>>) -> Self {
        Self { name: name.into(), value: value.into() }
    }
}

/// The labels of a global, by name. The shell has bounded their number and length.
///
/// Most globals have none, which takes one word.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labels(Option<Arc<Vec<Label>>>);

impl Labels {
    /// No labels.
    pub const NONE: Self = Self(None);

    /// The labels in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = &Label> {
        self.0.iter().flat_map(|labels| labels.iter())
    }

    /// Returns whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }
}

impl FromIterator<Label> for Labels {
    /// Keeps the later one of two labels with one name.
    fn from_iter<T: IntoIterator<Item = Label>>(labels: T) -> Self {
        let mut labels: Vec<Label> = labels.into_iter().collect();
        if labels.is_empty() {
            return Self::NONE;
        }
        // The sort keeps the order of equal names.
        labels.sort_by(|one, other| one.name.cmp(&other.name));
        labels.dedup_by(|later, kept| {
            let same = later.name == kept.name;
            if same {
                std::mem::swap(later, kept);
            }
            same
        });
        Self(Some(Arc::new(labels)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_in_order_and_the_later_one_of_a_name_counts() {
        let given = [("order", "41"), ("country", "de"), ("order", "42")];
        let labels: Labels = given.into_iter().map(|(name, it)| Label::new(name, it)).collect();
        let expected = [Label::new("country", "de"), Label::new("order", "42")];
        assert!(labels.iter().eq(expected.iter()));
        assert_eq!(Labels::from_iter([]), Labels::NONE);
    }
}
