//! The machine's NUMA nodes, as the kernel lists them (`/sys/devices/system/node`, Linux's
//! Documentation/ABI/stable/sysfs-devices-node).

use core::ffi::CStr;

use crate::kernel::os;
use crate::settings::NodeSet;

/// Lists of nodes, the best first: those that have memory; those that there are, which kernels without the first have.
const LISTS: [&CStr; 2] = [c"/sys/devices/system/node/has_memory", c"/sys/devices/system/node/online"];

/// The nodes that have memory which this process may use. The first alone where the kernel lists none.
pub fn nodes() -> NodeSet {
    let allowed = os::allowed_nodes().unwrap_or(u64::MAX);
    for path in LISTS {
        let mut buffer = [0; 256];
        let len = os::read_file(path, &mut buffer);
        if let Some(nodes) = usable(&buffer[..len], allowed) {
            return nodes;
        }
    }
    NodeSet::FIRST
}

/// The nodes of a list that are in the set `allowed`.
fn usable(list: &[u8], allowed: u64) -> Option<NodeSet> {
    let nodes = NodeSet::parse(list.trim_ascii())?;
    NodeSet::from_bits(nodes.bits() & allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_count_that_have_memory_and_that_the_process_may_use() {
        let bits = |list: &[u8], allowed| usable(list, allowed).map(NodeSet::bits);
        assert_eq!(bits(b"0-3\n", u64::MAX), Some(0b1111));
        assert_eq!(bits(b"0,2-3\n", 0b0110), Some(0b0100));
        assert_eq!(bits(b"0-1\n", 0b1000), None);
        assert_eq!(bits(b"", u64::MAX), None);
        assert_eq!(bits(b"\n", u64::MAX), None);
    }

    #[test]
    fn this_machine_has_a_node_and_this_thread_runs_on_one() {
        assert!(nodes().bits() != 0);
        assert!(os::current_node() <= NodeSet::MAX as usize);
    }
}
