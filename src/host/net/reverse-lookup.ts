import { Resolver } from "node:dns/promises";

/** Returns the name of an address; undefined if it has none or no server answers. */
export type ReverseLookup = (ip: string) => Promise<string | undefined>;

/** Queries the machine's name servers for a PTR record (RFC 1035 §3.5), once, for 3 s. */
export const reverseLookup: ReverseLookup = async (ip) => {
  const resolver = new Resolver({ timeout: 3000, tries: 1 });
  try {
    const [name] = await resolver.reverse(ip);
    return name;
  } catch {
    return undefined;
  }
};
