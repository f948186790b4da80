//! The nodes that share a store, as text.

use super::{Sheet, Style, add_row, flowing, table, text, whole};
use crate::admin::model::{Cluster, ClusterNode, NodeStanding, SeenClusterNode, TransferReply};
use crate::time_format;

/// Renders which node leads, where the asked node stands, and which nodes are there.
pub(in crate::cli) fn render_cluster(cluster: &Cluster, style: Style) -> String {
    let Cluster { node, standing, since, store, leader, epoch, nodes } = cluster;
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
    match nodes {
        Some(nodes) => format!("{}\n\n{}", text(&table), render_nodes(nodes, style)),
        None => text(&table),
    }
}

fn render_nodes(nodes: &[SeenClusterNode], style: Style) -> String {
    let columns = [
        whole("nodes"),
        flowing("version").left_out(1),
        whole("grpc").left_out(3),
        whole("admin"),
        flowing("seen").left_out(2),
    ];
    let mut sheet = Sheet::new(style, columns);
    for SeenClusterNode { node, seen_ms_ago } in nodes {
        let seen = format!("{} ago", time_format::duration(*seen_ms_ago));
        sheet.row([&node.id, &node.version, &node.grpc, &node.admin, &seen]);
    }
    sheet.text()
}

/// Renders the node that leads after a transfer.
pub(in crate::cli) fn render_transfer(reply: &TransferReply, _style: Style) -> String {
    let TransferReply { leader, epoch } = reply;
    format!("{} leads, epoch {epoch}", leader_text(leader))
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
