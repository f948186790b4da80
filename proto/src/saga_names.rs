//! Translates names of a saga's steps to indexes, which the messages use. Both forms of writing a
//! saga, the builder and JSON, name the outputs that a step takes.

/// The outputs that a step takes, by index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepInputs {
    /// Indexes among the steps of its own saga: `SagaStep.takes`.
    pub own: Vec<u32>,
    /// Indexes among the outputs that its child saga takes: `SagaStep.takes_outer`.
    pub outer: Vec<u32>,
    /// The names of all of them, in the order in which steps of a child refer to its inputs.
    pub names: Vec<String>,
}

impl StepInputs {
    /// Finds names among a saga's own steps, or else among the outputs from outside the saga.
    ///
    /// ```
    /// use handfast_proto::saga_names::StepInputs;
    ///
    /// let names = |all: &[&str]| all.iter().map(|name| name.to_string()).collect::<Vec<_>>();
    /// let (own, outer) = (names(&["quote", "charge"]), names(&["reserve"]));
    /// let taken = StepInputs::find(names(&["reserve", "charge"]), &own, &outer).unwrap();
    /// assert_eq!((taken.own, taken.outer), (vec![1], vec![0]));
    /// assert_eq!(taken.names, ["charge", "reserve"]);
    /// assert_eq!(StepInputs::find(names(&["ship"]), &own, &outer).unwrap_err(), "ship");
    /// ```
    ///
    /// # Errors
    /// The first unknown name.
    pub fn find(names: Vec<String>, own: &[String], outer: &[String]) -> Result<Self, String> {
        let (mut taken, mut outer_names) = (Self::default(), Vec::new());
        for name in names {
            if let Some(place) = place_of(&name, own) {
                taken.own.push(place);
                taken.names.push(name);
            } else if let Some(place) = place_of(&name, outer) {
                taken.outer.push(place);
                outer_names.push(name);
            } else {
                return Err(name);
            }
        }
        taken.names.append(&mut outer_names);
        Ok(taken)
    }
}

/// Returns the index of a name.
#[must_use]
pub fn place_of(name: &str, names: &[String]) -> Option<u32> {
    (0..).zip(names).find(|(_, known)| *known == name).map(|(place, _)| place)
}
