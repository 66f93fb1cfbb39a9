import { Resolver } from "node:dns/promises";

/** The name of an address; undefined when it has none, or nobody says. */
export type ReverseLookup = (ip: string) => Promise<string | undefined>;

/** Asks the machine's name servers for a PTR record (RFC 1035, section 3.5), 3 s and once. */
export const reverseLookup: ReverseLookup = async (ip) => {
  const resolver = new Resolver({ timeout: 3000, tries: 1 });
  try {
    const [name] = await resolver.reverse(ip);
    return name;
  } catch {
    return undefined;
  }
};
