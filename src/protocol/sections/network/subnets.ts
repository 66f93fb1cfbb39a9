import { addressRange, parseCidr } from "../../../lib/net/cidr.ts";
import type { NetworkInterface } from "./config.ts";
import { DEFAULT_VRF } from "./fields.ts";
import type { NetworkReader, Place } from "./reader.ts";

/** Limit of warnings of one kind. */
const MAX_WARNINGS = 64;

/** An address with its network, and the entry that has it. */
export interface PlacedAddress {
  readonly at: Place;
  readonly field: string;
  readonly address: string;
  readonly link: string;
  readonly vrf: string;
}

interface Block extends PlacedAddress {
  readonly low: Uint8Array;
  readonly high: Uint8Array;
}

/** Every address of some interfaces and of their VLANs, where it stands; `placeOf` finds the entry of a link. */
export function placedAddresses(
  interfaces: readonly NetworkInterface[],
  placeOf: (link: string) => Place,
): PlacedAddress[] {
  return interfaces.flatMap(({ nic, ip, addIps, vrf, subInterfaces }) => [
    ...own({ at: placeOf(nic), link: nic, vrf: vrf ?? DEFAULT_VRF }, ip, addIps),
    ...subInterfaces.flatMap((vlan) =>
      own({ at: placeOf(vlan.link), link: vlan.link, vrf: vlan.vrf ?? DEFAULT_VRF }, vlan.ip, vlan.addIps),
    ),
  ]);
}

function own(
  where: Pick<PlacedAddress, "at" | "link" | "vrf">,
  ip: string | undefined,
  more: readonly string[],
): PlacedAddress[] {
  const first = ip === undefined ? [] : [{ ...where, field: "ip", address: ip }];
  return [...first, ...more.map((address) => ({ ...where, field: "addIps", address }))];
}

/** Warns of networks of one VRF that overlap on two links, once for each link that comes later. */
export function noteOverlaps(reader: NetworkReader, addresses: readonly PlacedAddress[]): void {
  const byVrf = new Map<string, Block[]>();
  for (const block of addresses.flatMap(blockOf)) {
    const blocks = byVrf.get(block.vrf);
    if (blocks === undefined) byVrf.set(block.vrf, [block]);
    else blocks.push(block);
  }
  const reported = new Set<string>();
  for (const blocks of byVrf.values()) {
    const open: Block[] = [];
    for (const block of blocks.toSorted((a, b) => Buffer.compare(a.low, b.low) || Buffer.compare(b.high, a.high))) {
      while (open.length > 0 && Buffer.compare(open.at(-1)?.high ?? block.low, block.low) < 0) open.pop();
      const other = open.findLast(({ link }) => link !== block.link);
      open.push(block);
      const key = `${block.link} ${other?.link}`;
      if (other === undefined || reported.has(key) || reported.size >= MAX_WARNINGS) continue;
      reported.add(key);
      const text = `${block.address} overlaps ${other.address} of ${other.link}`;
      reader.note("E_SUBNET_OVERLAP", block.at, block.field, text);
    }
  }
}

/** Warns of addresses inside the network of the containers' bridge, which are then not reached from containers. */
export function noteBridgeOverlaps(
  reader: NetworkReader,
  addresses: readonly Pick<PlacedAddress, "at" | "field" | "address">[],
  bridgeCidr: string,
): void {
  const bridge = addressRange(bridgeCidr);
  if (bridge === undefined) return;
  const inside = addresses.filter(({ address }) => {
    const one = addressRange(address.split("/")[0] ?? "");
    return one !== undefined && Buffer.compare(one.low, bridge.low) >= 0 && Buffer.compare(one.low, bridge.high) <= 0;
  });
  for (const { at, field, address } of inside.slice(0, MAX_WARNINGS)) {
    const text = `${address} is inside bridgeCIDR ${bridgeCidr}; containers cannot reach it`;
    reader.note("E_BRIDGE_OVERLAP", at, field, text);
  }
}

function blockOf(placed: PlacedAddress): Block[] {
  const network = parseCidr(placed.address);
  const range = network === undefined ? undefined : addressRange(network.text);
  // A single address is an alias, which lies in another's network by intent.
  return range === undefined || placed.address.endsWith("/32") ? [] : [{ ...placed, ...range }];
}
