/** The subject of a kernel notification. */
export type NetworkChange = "link" | "address" | "route" | "resolver";

const HEADER_BYTES = 16;

/** nlmsghdr types of rtnetlink(7): a new and a deleted one each. */
const CHANGES: Readonly<Record<number, NetworkChange>> = {
  16: "link",
  17: "link",
  20: "address",
  21: "address",
  24: "route",
  25: "route",
};

/** Groups of rtnetlink(7): link, IPv4 address, IPv4 route, IPv6 address, IPv6 route. */
export const NETLINK_GROUPS = 0x1 | 0x10 | 0x40 | 0x100 | 0x400;

/** Returns the changes that one received datagram announces. */
export function parseChanges(datagram: DataView): ReadonlySet<NetworkChange> {
  const changes = new Set<NetworkChange>();
  let at = 0;
  while (at + HEADER_BYTES <= datagram.byteLength) {
    const length = datagram.getUint32(at, true);
    if (length < HEADER_BYTES) break;
    const change = CHANGES[datagram.getUint16(at + 4, true)];
    if (change !== undefined) changes.add(change);
    at += Math.ceil(length / 4) * 4;
  }
  return changes;
}

/** Returns a struct sockaddr_nl (netlink(7)); the kernel chooses the port. */
export function netlinkAddress(groups: number): Uint8Array {
  const address = new DataView(new ArrayBuffer(12));
  address.setUint16(0, 16, true);
  address.setUint32(8, groups, true);
  return new Uint8Array(address.buffer);
}
