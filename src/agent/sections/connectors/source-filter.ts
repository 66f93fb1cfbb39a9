import { addressRange } from "../../../lib/net/cidr.ts";
import type { OverlayListener } from "../../../protocol/overlay/overlay.ts";

/** The table of nftables for connectors; the section `network` and containers have tables of their own. */
export const CONNECTORS_TABLE = "holdfast_connectors";

/**
 * The table that drops packets from sources outside a connector's `sourceBlock`, before a TCP handshake; undefined when no connector has
 * one. It does not filter programs of this machine: the overlay checks every source itself. Pure.
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
 * The blocks that no other contains: a set of nftables takes none that overlap. Of two blocks that overlap one contains the other, so in the
 * order of their first addresses, the wider one first, each is compared with one other only.
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
