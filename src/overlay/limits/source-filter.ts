import { BlockList, isIP } from "node:net";

/** Decides which source addresses may connect. */
export interface SourceFilter {
  allows(address: string): boolean;
}

const EVERYBODY: SourceFilter = { allows: () => true };

/**
 * Builds a filter from address blocks (RFC 4632, RFC 4291 §2.3) or addresses. Without a list every address may connect,
 * with an empty one none.
 */
export function sourceFilter(blocks: readonly string[] | undefined): SourceFilter {
  if (blocks === undefined) return EVERYBODY;
  const list = new BlockList();
  for (const block of blocks) {
    const [address = "", prefix] = block.split("/");
    const family = isIP(address);
    if (family === 0) continue;
    list.addSubnet(address, prefix === undefined ? (family === 4 ? 32 : 128) : Number(prefix), familyName(family));
  }
  return { allows: (address) => isIP(address) !== 0 && list.check(address, familyName(isIP(address))) };
}

function familyName(family: number): "ipv4" | "ipv6" {
  return family === 6 ? "ipv6" : "ipv4";
}
