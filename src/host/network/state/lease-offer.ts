import { isIPv4 } from "node:net";

/** The gateway and name servers of a lease. */
export interface LeaseOffer {
  /** The default gateway. */
  readonly router?: string;
  readonly nameServers: readonly string[];
}

/** The limit of resolv.conf(5). */
const MAX_NAME_SERVERS = 3;

/** Parses the file of the DHCP clients' script; ignores values that are not host addresses. */
export function parseOffer(text: string): LeaseOffer {
  const words = (name: string): readonly string[] => {
    const line = text.split("\n").find((one) => one.startsWith(`${name} `)) ?? "";
    return line.split(/\s+/).slice(1).filter(isHost);
  };
  const [router] = words("router");
  const nameServers = [...new Set(words("dns"))].slice(0, MAX_NAME_SERVERS);
  return router === undefined ? { nameServers } : { router, nameServers };
}

function isHost(word: string): boolean {
  const [first = 0] = word.split(".", 1).map(Number);
  return isIPv4(word) && first > 0 && first !== 127 && first < 224;
}
