//! The nodes that share a store, as text.

use super::{Style, add_row, table, text};
use crate::admin::model::{Cluster, ClusterNode, NodeStanding};

/// Renders which node leads, and where the asked node stands.
pub(in crate::cli) fn render_cluster(cluster: &Cluster, style: Style) -> String {
    let Cluster { node, standing, since, store, leader, epoch } = cluster;
    let mut table = table(style, &["node", &node.id]);
    let mut rows = vec![
        ("stands", format!("{} since {since}", standing_name(*standing))),
        ("store", store.clone()),
        ("leader", leader.as_ref().map_or_else(|| "none is known".to_owned(), leader_text)),
        ("epoch", epoch.map_or_else(String::new, |epoch| epoch.to_string())),
        ("version", node.version.clone()),
        ("grpc", node.grpc.clone()),
        ("admin", node.admin.clone()),
    ];
    rows.extend(node.seata.as_ref().map(|seata| ("seata", seata.clone())));
    for (name, value) in rows {
        add_row(&mut table, [name, &value]);
    }
    text(&table)
}

fn leader_text(leader: &ClusterNode) -> String {
    format!("{} (version {}, admin {})", leader.id, leader.version, leader.admin)
}

fn standing_name(standing: NodeStanding) -> &'static str {
    match standing {
        NodeStanding::Following => "following",
        NodeStanding::Gaining => "gaining the lead",
        NodeStanding::Leading => "leading",
        NodeStanding::Ended => "ended",
    }
}
