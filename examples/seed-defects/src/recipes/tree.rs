//! A tree of nodes with ZooKeeper's rules, as far as locks use them: sequential nodes, children,
//! watches that fire once. Time does not pass in it; each call is one message.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Nodes by name, under one parent.
#[derive(Debug, Default)]
pub(super) struct Tree {
    nodes: BTreeSet<String>,
    next: u32,
    watches: BTreeMap<String, Vec<Watch>>,
}

/// Whether it has fired.
#[derive(Debug, Clone, Default)]
pub(super) struct Watch(Rc<RefCell<bool>>);

impl Watch {
    pub(super) fn has_fired(&self) -> bool {
        *self.0.borrow()
    }
}

/// A node that is watched is not there.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NoNode;

impl Tree {
    /// Creates a node with the next number behind its name.
    pub(super) fn create_sequential(&mut self, prefix: &str) -> String {
        let name = format!("{prefix}{:010}", self.next);
        self.next += 1;
        self.create(&name);
        name
    }

    pub(super) fn create(&mut self, name: &str) {
        self.nodes.insert(name.to_owned());
    }

    /// In the order of their names.
    pub(super) fn children(&self) -> Vec<String> {
        self.nodes.iter().cloned().collect()
    }

    /// Tells the watch when the node goes. One that is not there is watched for its creation, which
    /// for a sequential node never comes.
    pub(super) fn exists(&mut self, name: &str, watch: &Watch) -> Result<(), NoNode> {
        self.watches.entry(name.to_owned()).or_default().push(watch.clone());
        if self.nodes.contains(name) { Ok(()) } else { Err(NoNode) }
    }

    pub(super) fn delete(&mut self, name: &str) {
        if self.nodes.remove(name) {
            for watch in self.watches.remove(name).into_iter().flatten() {
                *watch.0.borrow_mut() = true;
            }
        }
    }
}

/// Who stands just before a node.
pub(super) fn predecessor(children: &[String], own: &str) -> Option<String> {
    children.iter().rev().find(|child| child.as_str() < own).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_fires_when_its_node_goes() {
        let (mut tree, watch) = (Tree::default(), Watch::default());
        let first = tree.create_sequential("lock-");
        let second = tree.create_sequential("lock-");
        assert_eq!(predecessor(&tree.children(), &second).as_ref(), Some(&first));
        assert_eq!(tree.exists(&first, &watch), Ok(()));
        assert!(!watch.has_fired());
        tree.delete(&first);
        assert!(watch.has_fired());
        assert_eq!(tree.exists(&first, &Watch::default()), Err(NoNode));
        assert_eq!(predecessor(&tree.children(), &second), None);
    }
}
