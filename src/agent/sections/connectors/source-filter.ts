import { addressRange } from "../../../lib/net/cidr.ts";
import type { OverlayListener } from "../../../protocol/overlay/overlay.ts";

/** nftables table of connectors, separate from those of the section `network` and of containers. */
export const CONNECTORS_TABLE = "holdfast_connectors";

/**
 * Writes the table that drops packets from sources outside a connector's `sourceBlock` before a TCP handshake; undefined if no connector
 * has one. It does not filter local programs: the overlay checks every source itself. Pure.
 */
export function sourceFilter(listeners: readonly OverlayListener[]): string | undefined {
  const lines = listeners.flatMap(filterLines);
  if (lines.length === 0) return undefined;
  const hook = "type filter hook input priority filter; policy accept;";
  return [
    `table inet ${CONNECTORS_TABLE} {`,
    "chain input {",
    hook,
    'iifname "lo" accept',
    ...lines,
    "}",
    "}",
    "",
  ].join("\n");
}

function filterLines({ protocol, addresses, port, sources }: OverlayListener): readonly string[] {
  if (sources === undefined || sources.includes("0.0.0.0/0")) return [];
  const to = addresses.includes("0.0.0.0") ? "meta nfproto ipv4 " : `ip daddr { ${addresses.join(", ")} } `;
  const blocks = apart(sources);
  const from = blocks.length === 0 ? "" : `ip saddr != { ${blocks.join(", ")} } `;
  return [`${to}${protocol} dport ${port} ${from}drop`];
}

/**
 * Returns the blocks that no other block contains, since nftables sets refuse overlaps. Two blocks overlap only if one contains the other.
 * Sorted by first address, wider first, each block is compared with one other only.
 */
function apart(blocks: readonly string[]): readonly string[] {
  const known = blocks.flatMap((text) => {
    const range = addressRange(text);
    return range === undefined ? [] : [{ text, ...range }];
  });
  const kept: string[] = [];
  let wider: Uint8Array | undefined;
  for (const { text, high } of known.toSorted(
    (a, b) => Buffer.compare(a.low, b.low) || Buffer.compare(b.high, a.high),
  )) {
    if (wider !== undefined && Buffer.compare(high, wider) <= 0) continue;
    wider = high;
    kept.push(text);
  }
  return kept;
}
