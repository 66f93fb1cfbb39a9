import { BlockList, isIP } from "node:net";
import { plainAddress } from "./plain-address.ts";

const forbidden = new BlockList();
for (const [address, prefix] of [
  ["0.0.0.0", 8],
  ["169.254.0.0", 16],
  ["224.0.0.0", 4],
  ["240.0.0.0", 4],
  // Metadata services of clouds besides 169.254.169.254; they return the machine's credentials.
  ["100.100.100.200", 32],
  ["168.63.129.16", 32],
] as const)
  forbidden.addSubnet(address, prefix, "ipv4");
for (const [address, prefix] of [
  ["::", 128],
  ["fe80::", 10],
  ["ff00::", 8],
  ["fd00:ec2::254", 128],
] as const)
  forbidden.addSubnet(address, prefix, "ipv6");

/** Reports whether peers may not name an address: link-local, multicast, reserved, or a cloud's metadata service. */
export function isForbidden(address: string): boolean {
  const plain = plainAddress(address);
  const family = isIP(plain);
  return family === 0 || forbidden.check(plain, family === 6 ? "ipv6" : "ipv4");
}
